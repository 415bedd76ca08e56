// cluster_tiles: how the blocks of a cluster share the tiles that they fetch, and the order of
// tiles. `wgmma_cluster` introduces them and explains why. `wgmma_deferred` introduces the pair
// `start_step` and `end_step`, and `wgmma_mixed` introduces `MixedTiles`.
//
// The blocks of a cluster of CM×CN compute neighbouring tiles: CM rows of CN tiles. Blocks in a row
// need the same rows of A, so each fetches 1/CN of them, and the TMA writes this part into the
// shared memory of all (multicast). Blocks in a column do the same with columns of B. A stage may
// be overwritten when it is free in every block. It is filled when all its parts have arrived.
//
// The order: down GROUP rows of clusters, then along the columns; every second such group
// backwards, so that the next group begins with the columns that were used last:
//
//      0  2  4  6          GROUP = 2
//      1  3  5  7
//     14 12 10  8
//     15 13 11  9
//
// Every second tile of a block runs through k backwards, and so begins with the parts of A and B
// that the L2 cache got last.

#pragma once

#include "../mma/tensor_cores.cuh"

// A block's tile of C.
struct BlockTile {
  int row;
  int col;
  int columns;
};

// This block's place in its cluster: in PARTS groups of CM×CN blocks, each of which shares what it
// fetches.
template <int CM, int CN, int PARTS = 1>
struct Rank {
  int part = 0;
  int first = 0;  // number in the cluster of the first block of this part
  int row;
  int col;

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
};

struct Place {
  int row;
  int col;
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

// All tiles, for this block. A cluster takes every gridDim.x / (CM · CN)-th of them.
template <int BM, int BN, int CM, int CN, int GROUP, int PARTS = 1>
struct ClusterTiles {
  Rank<CM, CN, PARTS> rank;
  int down;
  int across;

  __device__ __forceinline__ ClusterTiles(int M, int N)
      : down((M + BM * CM - 1) / (BM * CM)), across((N + BN * CN - 1) / (BN * CN)) {}
  __device__ __forceinline__ int count() const { return down * across; }
  __device__ __forceinline__ BlockTile operator[](int index) const {
    const Place place = snake<GROUP>(index, down, across);
    return {(place.row * CM + rank.row) * BM, (place.col * CN + rank.col) * BN, BN};
  }
};

constexpr int NARROW = 128;

// Tiles of two widths: those of BN columns, `wide` of them in a row of clusters, then those of
// NARROW columns. The host chooses `wide` so that all blocks end together.
template <int BM, int BN, int CM, int CN, int GROUP>
struct MixedTiles {
  Rank<CM, CN> rank;
  int down;
  int wide;
  int narrow;

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

// A barrier of all threads of the cluster's blocks that have not ended.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void await_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void meet_cluster() {
  arrive_at_cluster();
  await_cluster();
}

// Initializes the ring, and waits until all blocks of the cluster have done so.
template <int STAGES>
__device__ __forceinline__ void init_cluster(Ring<STAGES>& ring, int releases) {
  if (threadIdx.x == 0) ring.init(releases);
  __syncwarp();
  meet_cluster();
}

// Copies a box to the same place in each block of the cluster that `mask` has a bit for, and counts
// its bytes on each one's barrier.
__device__ __forceinline__ void multicast_box(Mbarrier& filled, void* to, const CUtensorMap* map,
                                              int row, int col, unsigned short mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(map), "r"(col), "r"(row), "r"(shared_address(&filled)), "h"(mask)
      : "memory");
}

// Requests this block's parts of a step of a tile, by one thread. It expects all bytes that arrive
// in this block, from any block. In shared memory A and then B lie in parts whose rows have 128
// bytes, WIDTH elements: BM rows of A for each WIDTH values of k, and BK rows of B for each WIDTH
// columns. If B lies along k like A, it comes by 64 columns, or by 32 if 64 do not divide a block's
// part.
template <int BM, int BN, int CM, int CN, int BK, int WIDTH, bool B_ALONG_K = false, int PARTS>
__device__ __forceinline__ void
fetch_step(Mbarrier& filled, unsigned char* stage, const Rank<CM, CN, PARTS>& rank,
           const BlockTile& tile, int k, const CUtensorMap* a_map, const CUtensorMap* b_map) {
  constexpr int A_PARTS = BK / WIDTH;
  constexpr int A_ROWS = BM / CN;                                       // that this block sends
  constexpr int B_WIDTH = !B_ALONG_K ? WIDTH : BN / 64 % CM ? 32 : 64;  // columns
  constexpr int B_ROWS = B_ALONG_K ? B_WIDTH : BK;                      // of 128 bytes
  constexpr int B_PARTS = BN / B_WIDTH / CM;                            // that this block sends
  static_assert(BK % WIDTH == 0 && BM % CN == 0 && BN / B_WIDTH % CM == 0, "parts of one size");
  static_assert(!B_ALONG_K || A_PARTS == 1, "a part of k has all columns");
  constexpr unsigned short ROW = (1 << CN) - 1;
  constexpr unsigned short COLUMN = CM == 1 ? 1 : 1 | 1 << CN;
  static_assert(CM <= 2, "COLUMN has two bits");
  unsigned char* const b = stage + A_PARTS * BM * ROW_BYTES;
  filled.arrive_expect_bytes((BM + tile.columns) * A_PARTS * ROW_BYTES);
#pragma unroll
  for (int i = 0; i < A_PARTS; ++i) {
    unsigned char* const a = stage + i * BM * ROW_BYTES;
    if constexpr (CN == 1) {
      filled.copy_box(a, a_map, tile.row, k + i * WIDTH);
    } else {
      const int row = rank.col * A_ROWS;
      multicast_box(filled, a + row * ROW_BYTES, a_map, tile.row + row, k + i * WIDTH,
                    ROW << (rank.first + rank.row * CN));
    }
  }
#pragma unroll
  for (int i = 0; i < B_PARTS; ++i) {
    const int part = rank.row * B_PARTS + i;
    if (tile.columns < BN && part * B_WIDTH >= tile.columns) break;
    unsigned char* const to = b + part * B_ROWS * ROW_BYTES;
    const int col = tile.col + part * B_WIDTH;
    const int map_row = B_ALONG_K ? col : k;
    const int map_col = B_ALONG_K ? k : col;
    if constexpr (CM == 1) {
      filled.copy_box(to, b_map, map_row, map_col);
    } else {
      multicast_box(filled, to, b_map, map_row, map_col, COLUMN << (rank.first + rank.col));
    }
  }
}

// Waits for a step's stage and starts its multiplications, for WIDTH columns of a tile of BN.
// Kernels store results between this call and `end_step`.
template <typename Scalar, int BM, int BN, int WIDTH, int STAGES, int PIECES>
__device__ __forceinline__ void start_step(Sum<Scalar> (&sum)[PIECES][BN / 2], Ring<STAGES>& ring,
                                           Slot<STAGES> slot, unsigned base, int first_row,
                                           bool add) {
  const unsigned stage = base + slot.stage * (BM + BN) * ROW_BYTES;
  ring.filled[slot.stage].wait(slot.parity);
  wgmma_fence();
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    multiply_step<Scalar, WIDTH>(sum[p], stage + (first_row + p * 64) * ROW_BYTES,
                                 stage + BM * ROW_BYTES, add);
  }
  commit_multiplications();
}

// Waits for the previous step's multiplications, and frees its stage.
template <int BLOCKS, int STAGES>
__device__ __forceinline__ void
end_step(Ring<STAGES>& ring, Slot<STAGES>& slot, int& before, bool first) {
  await_multiplications<1>();
  if (!first) free_stage<BLOCKS>(ring.freed[before]);
  before = slot.stage;
  slot.advance();
}

// Waits until all stages are free, in the thread that fetches, before the block ends. Until then
// other blocks may arrive at this block's barriers.
template <int STAGES>
__device__ __forceinline__ void await_all_freed(Ring<STAGES>& ring, Slot<STAGES> slot) {
  for (int stage = 0; stage < STAGES; ++stage, slot.advance()) {
    ring.freed[slot.stage].wait(slot.parity ^ 1);
  }
}

// The producer's work, by one thread: every step of every tile of this block.
template <int BM, int BN, int CM, int CN, int BK = STEP, int WIDTH = STEP, bool B_ALONG_K = false,
          int STAGES, typename Tiles>
__device__ __forceinline__ void produce(Ring<STAGES>& ring, unsigned char* stages,
                                        const Tiles& tiles, int steps, const CUtensorMap* a_map,
                                        const CUtensorMap* b_map) {
  const Rank<CM, CN> rank;
  const int clusters = gridDim.x / (CM * CN);
  Slot<STAGES> slot;
  bool backwards = false;
  for (int index = blockIdx.x / (CM * CN); index < tiles.count(); index += clusters) {
    const BlockTile tile = tiles[index];
#pragma unroll 1
    for (int step = 0; step < steps; ++step, slot.advance()) {
      ring.freed[slot.stage].wait(slot.parity ^ 1);
      fetch_step<BM, BN, CM, CN, BK, WIDTH, B_ALONG_K>(
          ring.filled[slot.stage], stages + slot.stage * (BM + BN) * (BK / WIDTH) * ROW_BYTES, rank,
          tile, (backwards ? steps - 1 - step : step) * BK, a_map, b_map);
    }
    backwards = !backwards;
  }
  await_all_freed(ring, slot);
}
