// grouped_tile: `batched_tile` of gemm_batched, with tiles of groups of any number of rows.
//
// The products have different numbers of rows, which only GPU memory has. So the grid has the
// maximum number of rows of tiles for groups of GROUPS·M rows in total: each group has at most one
// tile that hangs over its end. A block looks for its tile in the offsets of the groups, which all
// blocks read from the cache. Blocks without a tile end.
//
// Sums of 16-bit operands are float32, and C is rounded once.
//
// What limits it: the product, as in `shared_tile`, and the search where there are many groups.

#include "../lib/tiles/shared_product.cuh"

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
grouped_tile(const Scalar* A, const Scalar* B, const int* offsets, Scalar* C, int GROUPS, int M,
             int N, int K) {
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

  const int row = first + tiles * TILE + threadIdx.y;
  const int column = blockIdx.x * TILE + threadIdx.x;
  const Sum<Scalar> sum = element<Scalar, TILE>(A, B, row, column, end, N, K);
  if (row < end && column < N) {
    C[static_cast<size_t>(row) * N + column] = static_cast<Scalar>(sum);
  }
}
