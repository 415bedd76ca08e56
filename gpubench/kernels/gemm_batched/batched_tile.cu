// batched_tile: `shared_tile` of gemm, with a layer of the grid for each product.
//
// A product of 64×64 has 16 blocks at TILE = 16, and a GPU has more multiprocessors than that. One
// launch of all products fills them: blockIdx.z is the number of the product, whose matrices begin
// that number of matrices further on. A launch for each product would also pay for each launch.
//
// Sums of 16-bit operands are float32, and C is rounded once.
//
// What limits it: the product, as in `shared_tile`. Both operands of each multiply-add come from
// shared memory. Small products waste threads of tiles that hang over the edge.

#include "../lib/sums/sum_type.cuh"

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
batched_tile(const Scalar* A, const Scalar* B, Scalar* C, int BATCH, int M, int N, int K) {
  __shared__ Sum<Scalar> a_tile[TILE][TILE];
  __shared__ Sum<Scalar> b_tile[TILE][TILE];

  const size_t product = blockIdx.z;  // the grid has BATCH layers
  A += product * M * K;
  B += product * K * N;
  C += product * M * N;
  const int x = threadIdx.x;
  const int y = threadIdx.y;
  const int row = blockIdx.y * TILE + y;
  const int column = blockIdx.x * TILE + x;

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
  if (row < M && column < N) {
    C[static_cast<size_t>(row) * N + column] = static_cast<Scalar>(sum);
  }
}
