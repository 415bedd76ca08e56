// grouped_tile: `batched_tile` of gemm_batched, with tiles of groups of any number of rows.
//
// The products have other numbers of rows each, which only the GPU knows. So the grid has as many
// rows of tiles as any groups with GROUPS·M rows in all can need: each group has at most one tile
// that hangs over its end. A block looks for its tile in the offsets of the groups, which all blocks
// read from the cache. Blocks that find none end.
//
// Sums of 16-bit operands are float32, and C is rounded once.
//
// What limits it: the product, as in `shared_tile`, and the search where there are many groups.

#include "../lib/sums/sum_type.cuh"

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
grouped_tile(const Scalar* A, const Scalar* B, const int* offsets, Scalar* C, int GROUPS, int M,
             int N, int K) {
  __shared__ Sum<Scalar> a_tile[TILE][TILE];
  __shared__ Sum<Scalar> b_tile[TILE][TILE];

  // The group, and the first row, of the blockIdx.y-th row of tiles.
  int group = 0;
  int first = 0;
  int tiles = blockIdx.y;
  for (; group < GROUPS; ++group) {
    const int own = (offsets[group] - first + TILE - 1) / TILE;
    if (tiles < own) break;
    tiles -= own;
    first = offsets[group];
  }
  if (group == GROUPS) return;
  const int end = offsets[group];
  B += static_cast<size_t>(group) * K * N;

  const int x = threadIdx.x;
  const int y = threadIdx.y;
  const int row = first + tiles * TILE + y;
  const int column = blockIdx.x * TILE + x;

  Sum<Scalar> sum = 0;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    a_tile[y][x] = row < end && x < K - k0
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
  if (row < end && column < N) {
    C[static_cast<size_t>(row) * N + column] = static_cast<Scalar>(sum);
  }
}
