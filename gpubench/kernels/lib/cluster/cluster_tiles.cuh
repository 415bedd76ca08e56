// cluster_tiles: which tile a block of a cluster computes, and the order of tiles. `wgmma_cluster`
// explains the order, and `wgmma_mixed` introduces `MixedTiles`.
//
// The blocks of a cluster of CM×CN compute neighbouring tiles: CM rows of CN tiles. Clusters go
// down GROUP rows of clusters, then along the columns. Every second such group goes backwards, and
// so begins with the columns that were used last:
//
//      0  2  4  6          GROUP = 2
//      1  3  5  7
//     14 12 10  8
//     15 13 11  9
//
// Every second tile of a block runs through k backwards, and so begins with what was used last.

#pragma once

#include "../mma/tensor_cores.cuh"

// A block's tile of C.
struct BlockTile {
  int row, col, columns;
  int product = 0;  // number of the product in a batch, or of the group of rows
  int end = 0;      // of a group: the row behind the group's last row
};

// This block's place in its cluster: PARTS groups of CM×CN blocks that share what they fetch.
template <int CM, int CN, int PARTS = 1>
struct Rank {
  int part = 0;
  int first = 0;  // number in the cluster of the first block of this part
  int row, col;

  __device__ __forceinline__ Rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if constexpr (PARTS > 1) {
      part = rank / (CM * CN);
      first = part * (CM * CN);
      rank -= first;
    }
    row = rank / CN;
    col = rank % CN;
  }
  // Number in the cluster of the block that has part 0 of the same tile.
  __device__ __forceinline__ int peer() const { return row * CN + col; }
};

struct Place {
  int row, col;
};

// The place of a tile among `down` rows and `across` columns of tiles, in the order above.
template <int GROUP>
__device__ __forceinline__ Place snake(int index, int down, int across) {
  const int group = index / (GROUP * across);
  const int within = index % (GROUP * across);
  const int height = min(GROUP, down - group * GROUP);
  const int col = within / height;
  return {group * GROUP + within % height, group % 2 ? across - 1 - col : col};
}

// The tiles of this block. A cluster takes every (gridDim.x / CLUSTER)-th tile.
template <int BM, int BN, int CM, int CN, int GROUP, int PARTS = 1>
struct ClusterTiles {
  static constexpr int DOWN = CM, BLOCKS = CM * CN;  // that share what they fetch
  static constexpr int CLUSTER = BLOCKS * PARTS;
  static constexpr int FURTHER_STEPS = 0;  // of a tile, beside those of K (`finish.cuh`)
  Rank<CM, CN, PARTS> rank;
  int down, across;

  __device__ __forceinline__ ClusterTiles(int M, int N)
      : down((M + BM * CM - 1) / (BM * CM)), across((N + BN * CN - 1) / (BN * CN)) {}
  __device__ __forceinline__ int count() const { return down * across; }
  __device__ __forceinline__ BlockTile operator[](int index) const {
    const Place place = snake<GROUP>(index, down, across);
    return {(place.row * CM + rank.row) * BM, (place.col * CN + rank.col) * BN, BN};
  }
};

constexpr int NARROW = 128;

// Tiles of two widths: all tiles of BN columns, then those of NARROW columns. A row of clusters has
// `wide` clusters of BN columns. The host chooses `wide` so that all blocks end together.
template <int BM, int BN, int CM, int CN, int GROUP>
struct MixedTiles {
  static constexpr int DOWN = CM, BLOCKS = CM * CN, CLUSTER = BLOCKS, FURTHER_STEPS = 0;
  Rank<CM, CN> rank;
  int down, wide, narrow;

  __device__ __forceinline__ MixedTiles(int M, int N, int wide)
      : down((M + BM * CM - 1) / (BM * CM)),
        wide(wide),
        narrow((max(N - wide * BN * CN, 0) + NARROW * CN - 1) / (NARROW * CN)) {}
  __device__ __forceinline__ int wide_count() const { return down * wide; }
  __device__ __forceinline__ int count() const { return down * (wide + narrow); }
  __device__ __forceinline__ BlockTile operator[](int index) const {
    const bool is_wide = index < wide_count();
    const Place place =
        snake<GROUP>(is_wide ? index : index - wide_count(), down, is_wide ? wide : narrow);
    const int columns = is_wide ? BN : NARROW;
    return {(place.row * CM + rank.row) * BM,
            (is_wide ? 0 : wide * BN * CN) + (place.col * CN + rank.col) * columns, columns};
  }
};
