// bulk_product: the innermost loop on a stage that the TMA has filled, and a padded copy of B.
// `bulk_copies` introduces them.
//
// As in `interleaved`, the operands of the next k are loaded into a second set of registers while
// those of this k are multiplied, and the loop over CHUNK values of k stays a loop. Here one turn
// of the loop ends in the middle of a k, with the loads for the next k under way. If it ended
// between two values of k, the compiler would place the loads right before their use. So the caller
// of `add_chunk` multiplies the first half of the first k, and the second half of the last k.

#pragma once

#include "../tiles/fragments.cuh"
#include "../tiles/panels.cuh"
#include "tma.cuh"

constexpr int CHUNK = 4;  // values of k; even, as fragments[0] and [1] take turns

// Makes the multiply-adds from the second half of this k to the first half of the k that comes
// STEPS later. `a` and `b` point to the operands of this k in shared memory.
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

// The number of columns of B with padding: rows of a tensor map start at multiples of 16 bytes.
__host__ __device__ constexpr int padded(int N) { return (N + 3) / 4 * 4; }

// Copies row k of B to a padded row, with 256 threads that have four loads in flight each.
template <typename Scalar>
__device__ __forceinline__ void
pad_row(const Scalar* __restrict__ B, Scalar* __restrict__ copy, size_t k, int N) {
  Scalar* const to = copy + k * padded(N);
#pragma unroll 4
  for (int col = threadIdx.x; col < padded(N); col += 256) {
    to[col] = col < N ? B[k * N + col] : Scalar(0);
  }
}
