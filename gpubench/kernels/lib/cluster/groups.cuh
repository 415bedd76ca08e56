// groups: tiles of groups of rows, each with its own B. `wgmma_grouped` introduces them.
//
// Only GPU memory has the number of rows of each group. So a thread counts tiles by the groups'
// offsets, and looks for a tile from the group of its last tile on. A box of rows may begin in a
// group and end in the next group. Loads of such a box only cost time. Of its results, threads
// store the rows that belong to the group.

#pragma once

#include "batch.cuh"
#include "fitted_tile.cuh"

// The tiles of all groups: in each group, down its rows of tiles, and then along the columns.
template <int BM, int BN, int CN>
struct GroupTiles {
  static constexpr int DOWN = 1, BLOCKS = CN, CLUSTER = CN, FURTHER_STEPS = 0;
  Rank<1, CN> rank;
  const int* offsets;  // the row behind the last row of each group
  int across;
  int tiles = 0;
  // Group of the last tile, the group's first row, and the number of tiles before the group.
  mutable int group = 0, first = 0, before = 0;

  // All threads of a warp take part.
  __device__ __forceinline__ GroupTiles(const int* offsets, int groups, int N)
      : offsets(offsets), across((N + BN * CN - 1) / (BN * CN)) {
    for (int i = threadIdx.x % 32; i < groups; i += 32) {
      tiles += down(offsets[i] - (i > 0 ? offsets[i - 1] : 0));
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) tiles += __shfl_xor_sync(~0u, tiles, apart);
    tiles *= across;
  }
  __device__ __forceinline__ static int down(int rows) { return (rows + BM - 1) / BM; }
  __device__ __forceinline__ int count() const { return tiles; }

  // `index` is at least the index of this thread's last tile.
  __device__ __forceinline__ BlockTile operator[](int index) const {
    int end = offsets[group], rows = down(end - first);
    while (index - before >= rows * across) {
      before += rows * across;
      first = end;
      end = offsets[++group];
      rows = down(end - first);
    }
    const int within = index - before;
    return {first + within % rows * BM, (within / rows * CN + rank.col) * BN, BN, group, end};
  }
};

// The rows of C that a group has.
template <typename Scalar>
struct RowsOfGroup {
  const CUtensorMap* map;
  Scalar* C;
  int N;
  int end = 0;
};

template <typename Scalar>
__device__ __forceinline__ void choose_matrix(RowsOfGroup<Scalar>& rows, const BlockTile& tile) {
  rows.end = tile.end;
}

// The TMA stores a whole box. If the group ends inside the box, threads store the group's rows.
template <typename Number, int SUMS, typename Scalar>
__device__ __forceinline__ void
leave_box(const RowsOfGroup<Scalar>& to, unsigned box, int row, int col) {
  if (row + 2 * SUMS <= to.end) {
    leave_box<Number, SUMS>(to.map, box, row, col);
    return;
  }
  const int chunk = threadIdx.x % 8, column = col + chunk * 8;  // N is a multiple of 8
#pragma unroll 1
  for (int i = threadIdx.x % 128 / 8; row + i < to.end; i += 128 / 8) {
    uint4 whole;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(whole.x), "=r"(whole.y), "=r"(whole.z), "=r"(whole.w)
                 : "r"(box + i * ROW_BYTES + swizzle(i, chunk) * 16)
                 : "memory");
    if (column < to.N) {
      reinterpret_cast<uint4*>(to.C)[(static_cast<size_t>(row + i) * to.N + column) / 8] = whole;
    }
  }
}
