// cluster_gemm: the skeleton of products by clusters: the roles of a block's threads, and the
// producer, which requests the steps of its tiles. `wgmma_cluster` introduces it.
//
// Blocks in a row of a cluster need the same rows of A. Each fetches 1/CN of them, and the TMA
// writes this part into the shared memory of all (multicast). Blocks in a column share B's.

#pragma once

#include "cluster_tiles.cuh"

// A barrier of all threads of the cluster's blocks that have not ended.
__device__ __forceinline__ void arrive_at_cluster() {
  PTX("barrier.cluster.arrive.relaxed.aligned;");
}
__device__ __forceinline__ void await_cluster() { PTX("barrier.cluster.wait.acquire.aligned;"); }

__device__ __forceinline__ void meet_cluster() {
  arrive_at_cluster();
  await_cluster();
}

// A warp of the last warpgroup calls `produce`, and each other warpgroup calls `consume` with its
// number. R has the numbers of their registers.
template <typename R, typename Produce, typename Consume>
__device__ __forceinline__ void divide_roles(Produce produce, Consume consume) {
  const int warpgroup = warpgroup_index();
  if (warpgroup == R::CONSUMERS) {
    lower_registers<R::PRODUCER_REGISTERS>();
    if (threadIdx.x % 128 < 32) produce();
  } else {
    raise_registers<R::CONSUMER_REGISTERS>();
    meet_cluster();
    consume(warpgroup);
  }
}

// Which boxes of a step to fetch: all, those for this block alone, or those for several blocks.
enum class Boxes { ALL, OWN, SHARED };

// Copies a box to this block, or to the same place in each block of the cluster that `mask` has a
// bit for, and counts its bytes on each block's barrier. `policy` is a policy of the L2 cache.
#define SEND_BOX(RANK, PLACE, OPTIONS, OPERANDS, ...)                                             \
  PTX("cp.async.bulk.tensor." RANK ".shared::cluster.global.mbarrier::complete_tx::bytes" OPTIONS \
      " [%0], [%1, {" PLACE "}], [%4], " OPERANDS ";",                                            \
      "r"(shared_address(to)), "l"(map), "r"(col), "r"(row), "r"(shared_address(&filled)),        \
      __VA_ARGS__)
template <int BLOCKS>
__device__ __forceinline__ void send_box(Mbarrier& filled, void* to, const CUtensorMap* map,
                                         int row, int col, unsigned short mask) {
  if constexpr (BLOCKS == 1) {
    filled.copy_box(to, map, row, col);
  } else {
    SEND_BOX("2d", "%2, %3", ".multicast::cluster", "%5", "h"(mask));
  }
}

template <int BLOCKS>
__device__ __forceinline__ void send_box(Mbarrier& filled, void* to, const CUtensorMap* map,
                                         int row, int col, unsigned short mask,
                                         unsigned long long policy) {
  if constexpr (BLOCKS == 1) {
    SEND_BOX("2d", "%2, %3", ".L2::cache_hint", "%5", "l"(policy));
  } else {
    SEND_BOX("2d", "%2, %3", ".multicast::cluster.L2::cache_hint", "%5, %6", "h"(mask),
             "l"(policy));
  }
}

// What a step brings beside its rows of A and B: nothing, or scales (`scaled_rows.cuh`).
template <int BM, typename Map>
__device__ __forceinline__ unsigned bytes_beside(const Map&) {
  return 0;
}
template <int BM, typename Map>
__device__ __forceinline__ void fetch_beside(Mbarrier&, const Map&, const BlockTile&, int) {}

// Number of rows of B that one of CM blocks sends by a copy, if B lies along n. A step has DEPTH
// rows of 128 bytes for each WIDTH columns, one such part below the other.
constexpr int box_of_b(int BN, int CM, int DEPTH = STEP, int WIDTH = STEP) {
  if (BN % WIDTH != 0) return DEPTH / CM;
  const int rows = BN / WIDTH * DEPTH / CM;
  return (rows & -rows) < DEPTH ? rows & -rows : DEPTH;
}

// One thread requests this block's parts of a step: of BM rows of A, which the CN blocks of a row
// share, and of BN columns of B, which the CM blocks of a column share. The barrier expects all
// bytes that arrive in this block, from any block. In shared memory A and then B lie in parts whose
// rows have 128 bytes, WIDTH elements: BM rows of A for each WIDTH values of k, and BK rows of B
// for each WIDTH columns. If B lies along k like A, it comes by boxes of B_BOX columns, or as one
// box (0). If BN is no multiple of WIDTH, `rest_map` is the map of B's last columns. Copies of B
// have the `policy`, if there is one. Maps are pointers, or a `MatrixOfBatch` (`batch.cuh`).
template <int BM, int BN, int BK = STEP, int WIDTH = STEP, bool B_ALONG_K = false, int B_BOX = 0,
          Boxes WHICH = Boxes::ALL, int CM, int CN, int PARTS, typename MapA, typename MapB,
          typename... Policy>
__device__ __forceinline__ void
fetch_step(Mbarrier& filled, unsigned char* stage, const Rank<CM, CN, PARTS>& rank,
           const BlockTile& tile, int k, MapA a_map, MapB b_map, MapB rest_map = {},
           Policy... policy) {
  constexpr int A_PARTS = BK / WIDTH;
  constexpr unsigned short ROW = (1 << CN) - 1;                  // CN bits
  constexpr unsigned short COLUMN = ((1 << CM * CN) - 1) / ROW;  // CM bits, CN apart
  // The swizzle repeats every 8 rows. If blocks cannot send equal parts of A's rows, one block
  // sends all rows: another block at each step.
  constexpr bool WHOLE_ROWS = BM % (8 * CN) != 0;
  static_assert(BM % 8 == 0 && (B_ALONG_K ? BN : BK) % (8 * CM) == 0, "the swizzle has 8 rows");
  if constexpr (WHICH != Boxes::SHARED) {
    filled.arrive_expect_bytes((BM + tile.columns) * A_PARTS * ROW_BYTES +
                               bytes_beside<BM>(a_map));
    fetch_beside<BM>(filled, a_map, tile, k);
  }
  if constexpr (WHICH != (CN == 1 ? Boxes::SHARED : Boxes::OWN)) {
#pragma unroll
    for (int i = 0; i < A_PARTS; ++i) {
      if (WHOLE_ROWS && k / BK % CN != rank.col) break;
      const int row = WHOLE_ROWS ? 0 : rank.col * (BM / CN);
      send_box<CN>(filled, stage + (i * BM + row) * ROW_BYTES, a_map, tile.row + row,
                   k + i * WIDTH, ROW << (rank.first + rank.row * CN));
    }
  }
  if constexpr (WHICH == (CM == 1 ? Boxes::SHARED : Boxes::OWN)) return;
  constexpr bool RAGGED = !B_ALONG_K && BN % WIDTH != 0;  // each block sends some of each part
  constexpr int PART = B_ALONG_K ? BN : BK;               // rows of 128 bytes
  constexpr int OWN = B_ALONG_K ? BN / CM : BN / WIDTH * BK / CM;
  constexpr int EACH = !B_ALONG_K ? box_of_b(BN, CM, BK, WIDTH) : B_BOX ? B_BOX : OWN;
  constexpr int BOXES = RAGGED ? BN / WIDTH + 1 : OWN / EACH;
#pragma unroll
  for (int i = 0; i < BOXES; ++i) {
    const int box = rank.row * BOXES + i;
    const int part = RAGGED ? i : B_ALONG_K ? 0 : box / (PART / EACH);
    const int row = RAGGED ? rank.row * EACH : B_ALONG_K ? box * EACH : box % (PART / EACH) * EACH;
    const int col = B_ALONG_K ? row : part * WIDTH;
    if (tile.columns < BN && col >= tile.columns) break;
    send_box<CM>(filled, stage + (A_PARTS * BM + part * PART + row) * ROW_BYTES,
                 RAGGED && i == BN / WIDTH ? rest_map : b_map,
                 B_ALONG_K ? tile.col + col : k + row, B_ALONG_K ? k : tile.col + col,
                 COLUMN << (rank.first + rank.col), policy...);
  }
}

// Chooses the matrix of a tile's product. A map of one matrix has no choice.
__device__ __forceinline__ void choose_matrix(const CUtensorMap*, const BlockTile&) {}

// The thread that fetches waits until all stages are free before the block ends. Until then other
// blocks may arrive at this block's barriers.
template <int STAGES>
__device__ __forceinline__ void await_all_freed(Ring<STAGES>& ring, Slot<STAGES> slot) {
  for (int stage = 0; stage < STAGES; ++stage, slot.advance()) {
    ring.freed[slot.stage].wait(slot.parity ^ 1);
  }
}

// Waits for a tile's further steps, which come before the last of at least two steps of K. Returns
// the slot of the first further step. The caller frees their stages.
template <int FURTHER_STEPS, int STAGES>
__device__ __forceinline__ Slot<STAGES> await_further(Ring<STAGES>& ring, Slot<STAGES>& slot) {
  const Slot<STAGES> first = slot;
#pragma unroll
  for (int i = 0; i < FURTHER_STEPS; ++i, slot.advance()) {
    ring.filled[slot.stage].wait(slot.parity);
  }
  return first;
}

// After its first tile, a block ENDs, or STAYs for further tiles. In a SERPENTINE, every second
// tile runs through k backwards, and B along k comes by boxes that also fit narrow tiles.
enum class Blocks { END, STAY, SERPENTINE };

// The producer: one warp initializes the ring, and requests this block's part of `steps` steps of
// its tiles, from number `first_step` on. A stage is free after `releases` arrivals. Boxes for
// several blocks wait until all blocks have initialized their rings. Other boxes do not wait.
template <Blocks BLOCKS, int BM, int BN, int BK, int WIDTH, bool B_ALONG_K, int STAGES,
          typename Tiles, typename MapA, typename MapB, typename... Policy>
__device__ __forceinline__ void
produce(Ring<STAGES>& ring, int releases, unsigned char* stages, const Tiles& tiles, int first_step,
        int steps, MapA a_map, MapB b_map, MapB rest_map = {}, Policy... policy) {
  constexpr int ROWS_OF_B = B_ALONG_K ? (BN + 63) / 64 * 64 : (BN + WIDTH - 1) / WIDTH * BK;
  constexpr int STAGE_BYTES = (BM * (BK / WIDTH) + ROWS_OF_B) * ROW_BYTES;
  static_assert(Tiles::FURTHER_STEPS == 0 || STAGES > Tiles::FURTHER_STEPS + 1,
                "two steps of K are under way beside further steps");
  constexpr int B_BOX = BLOCKS == Blocks::SERPENTINE ? BN / 64 % Tiles::DOWN ? 32 : 64 : 0;
  int index = blockIdx.x / Tiles::CLUSTER;
  BlockTile tile;
  const auto take_tile = [&] {
    tile = tiles[index];
    if constexpr (BLOCKS == Blocks::END) return;  // with the maps of its only tile
    choose_matrix(a_map, tile);
    choose_matrix(b_map, tile);
  };
  take_tile();
  const bool fetches = threadIdx.x % 32 == 0;
  if (fetches) {
    prefetch_map(a_map);
    prefetch_map(b_map);
    ring.init(releases);
  }
  __syncwarp();
  arrive_at_cluster();
  if (fetches) {
    wait_for_previous_launch();
    fetch_step<BM, BN, BK, WIDTH, B_ALONG_K, B_BOX, Boxes::OWN>(
        ring.filled[0], stages, tiles.rank, tile, first_step * BK, a_map, b_map, rest_map,
        policy...);
  }
  __syncwarp();
  await_cluster();
  if (!fetches) return;
  fetch_step<BM, BN, BK, WIDTH, B_ALONG_K, B_BOX, Boxes::SHARED>(
      ring.filled[0], stages, tiles.rank, tile, first_step * BK, a_map, b_map, rest_map, policy...);
  Slot<STAGES> slot;
  slot.advance();
  int step = 1;
  bool backwards = false;
  for (; BLOCKS == Blocks::END || index < tiles.count(); step = 0) {
    if constexpr (BLOCKS != Blocks::END) take_tile();
#pragma unroll 1
    for (; step < steps; ++step, slot.advance()) {
      if constexpr (Tiles::FURTHER_STEPS > 0) {
        for (int i = 0; step == steps - 1 && i < Tiles::FURTHER_STEPS; ++i, slot.advance()) {
          ring.freed[slot.stage].wait(slot.parity ^ 1);
          tiles.fetch_further(ring.filled[slot.stage], stages + slot.stage * STAGE_BYTES, tile, i);
        }
      }
      ring.freed[slot.stage].wait(slot.parity ^ 1);
      const int at = backwards ? steps - 1 - step : step;
      fetch_step<BM, BN, BK, WIDTH, B_ALONG_K, B_BOX>(
          ring.filled[slot.stage], stages + slot.stage * STAGE_BYTES, tiles.rank, tile,
          (first_step + at) * BK, a_map, b_map, rest_map, policy...);
    }
    if constexpr (BLOCKS == Blocks::END) break;
    if constexpr (BLOCKS == Blocks::SERPENTINE) backwards = !backwards;
    index += gridDim.x / Tiles::CLUSTER;
  }
  if constexpr (Tiles::BLOCKS > 1) await_all_freed(ring, slot);
}
