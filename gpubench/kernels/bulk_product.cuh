// bulk_product: what `bulk_copies` and `packed_panels` share: the innermost loop on a stage of shared
// memory that the TMA has filled, and the padded copy of a B whose rows a tensor map cannot take.
//
// As in `interleaved`, the next k's operands are loaded into a second set of registers while this
// k's are multiplied, and the loop over CHUNK values of k stays a loop. But it turns amid the
// multiply-adds of one k, with the next one's operands under way: were it to turn between two values
// of k, the compiler would load operands right before their use. So whoever calls `add_chunk` has
// multiplied the first HALF columns of the first k, and multiplies the rest of the last one.

#pragma once

#include "fragments.cuh"
#include "panels.cuh"
#include "tma.cuh"

constexpr int CHUNK = 4;  // values of k, even: fragments[0] and [1] take turns

// From the second half of this k's multiply-adds to the first half of those STEPS values of k later.
// `a` and `b` are this k's operands in shared memory.
template <int STEPS, int BM, int BN, typename Scalar, int TM, int TN>
__device__ __forceinline__ void add_chunk(const Scalar* a, const Scalar* b,
                                          Fragments<Scalar, TM, TN> (&fragments)[2],
                                          Scalar (&sum)[TM][TN]) {
  constexpr int HALF = TN / 2;
#pragma unroll
  for (int k = 0; k < STEPS; ++k) {
    fragments[(k + 1) % 2].load(a + (k + 1) * BM, b + (k + 1) * BN);
    fragments[k % 2].template multiply_columns<HALF, TN>(sum);
    fragments[(k + 1) % 2].template multiply_columns<0, HALF>(sum);
  }
}

// A tensor map takes rows that start at multiples of 16 bytes: columns of B with that padding.
__host__ __device__ constexpr int padded(int N) { return (N + 3) / 4 * 4; }

// Copies row k of B to a padded row, by 256 threads.
template <typename Scalar>
__device__ __forceinline__ void pad_row(const Scalar* B, Scalar* copy, size_t k, int N) {
  Scalar* const to = copy + k * padded(N);
  for (int col = threadIdx.x; col < padded(N); col += 256) {
    to[col] = col < N ? B[k * N + col] : Scalar(0);
  }
}
