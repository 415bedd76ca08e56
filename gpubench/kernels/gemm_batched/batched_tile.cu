// batched_tile: `shared_tile` of gemm, with a layer of the grid for each product.
//
// A product of 64×64 has 16 blocks at TILE = 16, and a GPU has more multiprocessors than that. One
// launch of all products fills them: blockIdx.z is the number of the product and of its matrices.
// A launch for each product would take longer.
//
// Sums of 16-bit operands are float32, and C is rounded once.
//
// What limits it: the product, as in `shared_tile`. Both operands of each multiply-add come from
// shared memory. Small products waste threads of tiles that hang over the edge.

#include "../lib/tiles/shared_product.cuh"

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
batched_tile(const Scalar* A, const Scalar* B, Scalar* C, int BATCH, int M, int N, int K) {
  const size_t product = blockIdx.z;  // the grid has BATCH layers
  A += product * M * K;
  B += product * K * N;
  C += product * M * N;
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int column = blockIdx.x * TILE + threadIdx.x;
  const Sum<Scalar> sum = element<Scalar, TILE>(A, B, row, column, M, N, K);
  if (row < M && column < N) {
    C[static_cast<size_t>(row) * N + column] = static_cast<Scalar>(sum);
  }
}
