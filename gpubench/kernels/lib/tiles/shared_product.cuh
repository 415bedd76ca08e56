// shared_product: an element of a product, whose operands a block copies through shared memory. The
// loop is that of `shared_tile`, and sums of 16-bit operands are float32.

#pragma once

#include "../sums/sum_type.cuh"

// Returns a thread's element of A·B. All threads of the block take part.
template <typename Scalar, int TILE>
__device__ Sum<Scalar> element(const Scalar* A, const Scalar* B, int row, int column, int M, int N,
                               int K) {
  __shared__ Sum<Scalar> a_tile[TILE][TILE];
  __shared__ Sum<Scalar> b_tile[TILE][TILE];
  const int x = threadIdx.x;
  const int y = threadIdx.y;
  Sum<Scalar> sum = 0;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    a_tile[y][x] = row < M && x < K - k0
                       ? static_cast<Sum<Scalar>>(A[static_cast<size_t>(row) * K + k0 + x])
                       : 0;
    b_tile[y][x] = column < N && y < K - k0
                       ? static_cast<Sum<Scalar>>(B[static_cast<size_t>(k0 + y) * N + column])
                       : 0;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += a_tile[y][k] * b_tile[k][x];
    __syncthreads();
  }
  return sum;
}
