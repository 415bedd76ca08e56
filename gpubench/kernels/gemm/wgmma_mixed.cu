// wgmma_mixed: tiles of two widths, so that all blocks end together.
//
// Against `wgmma_deferred`: a pair of tiles of 256×192 takes 17 % fewer bytes per operation than a
// pair of 128×256. Bytes cost power, and the power limit lowers the clock. But 4096×4096 are 176
// such pairs for 66 pairs of multiprocessors: two rounds, and a third round in which 22 pairs are
// idle. So the last columns are cut into tiles of 256×128, on the same registers: 128 wide pairs
// and 64 narrow pairs are two and one for each of 64 pairs of multiprocessors.
//
// 192 sums leave no registers for a tile's results. Instead a warpgroup's two pieces of 64 rows
// take turns. `-` is a step, and `=` is the store of results. Time goes from left to right:
//
//     producer                wait for a free stage, request A and B, next stage, ... across tiles
//     TMA                     [ stage 0 ][ stage 1 ][ stage 2 ][ stage 0 ] ...
//     warpgroup 0   piece 0   - - - - - - - - =====       - - - - - -
//                   piece 1       - - - - - - - - - =====     - - - -
//                                                   ^ the next tile: two steps of piece 0 alone
//                                                     while results of piece 1 are stored, and
//                                                     then piece 1 catches up
//     warpgroup 1             the same for its own two pieces of 64 rows
//
// A stage is free when both pieces of both warpgroups, in each block of the cluster, have used it.
//
// What limits it: the power of the multiplications themselves.

#include "../lib/cluster/cluster_gemm.cuh"

// A consumer has two pieces of 64 rows. The sums of the pieces are arguments.
template <typename Scalar, int BM, int BN, int STAGES, int BLOCKS>
struct Consumer {
  Ring<STAGES>& ring;
  unsigned stages;
  ResultBoxes boxes;
  int first_row;
  Slot<STAGES> slot = {};
  BlockTile pending = {};  // the tile whose piece 1 is not stored yet, or no columns

  // Multiplies a tile of at least 4 steps. Stores the sums of a PENDING piece, `last`, meanwhile.
  template <bool PENDING, int SUMS, int LAST>
  __device__ __forceinline__ void multiply_tile(Sum<Scalar> (&sum)[2][SUMS],
                                                const Sum<Scalar> (&last)[LAST],
                                                const BlockTile& tile, int steps) {
    const int first = next_stage();
    start(sum[0], 0, first, false);
    int previous = next_stage();
    start(sum[0], 0, previous, true);
    if constexpr (PENDING) store_pending(last);
    start(sum[1], 1, first, false);
    start<false>(sum[1], 1, previous, true);
    await_multiplications<1>();
    free_stage<BLOCKS>(ring.freed[first]);
#pragma unroll 1
    for (int step = 2; step < steps - 1; ++step) {
      const int stage = next_stage();
      wgmma_fence();
      multiply(sum[0], 0, stage, true);
      start<false>(sum[1], 1, stage, true);
      await_multiplications<1>();
      free_stage<BLOCKS>(ring.freed[previous]);
      previous = stage;
    }
    const int end = next_stage();
    start(sum[0], 0, end, true);
    start<false>(sum[1], 1, end, true);
    await_multiplications<1>();
    free_stage<BLOCKS>(ring.freed[previous]);
    store(sum[0], 0, tile);
    await_multiplications<0>();
    free_stage<BLOCKS>(ring.freed[end]);
    pending = tile;
  }
  template <int SUMS>
  __device__ __forceinline__ void store_pending(const Sum<Scalar> (&sum)[SUMS]) {
    if (pending.columns) store(sum, 1, pending);
  }

 private:
  template <int SUMS>
  __device__ __forceinline__ void
  multiply(Sum<Scalar> (&sum)[SUMS], int piece, int stage, bool add) {
    const unsigned at = stages + stage * (BM + BN) * ROW_BYTES;
    multiply_step<Scalar, 2 * SUMS>(sum, at + (first_row + piece * 64) * ROW_BYTES,
                                    at + BM * ROW_BYTES, add);
  }
  // Starts to multiply a piece and closes the group. FENCE: other code has used the sums.
  template <bool FENCE = true, int SUMS>
  __device__ __forceinline__ void start(Sum<Scalar> (&sum)[SUMS], int piece, int stage, bool add) {
    if constexpr (FENCE) wgmma_fence();
    multiply(sum, piece, stage, add);
    commit_multiplications();
  }
  template <int SUMS>
  __device__ __forceinline__ void
  store(const Sum<Scalar> (&sum)[SUMS], int piece, const BlockTile& tile) {
#pragma unroll
    for (int box = 0; box < SUMS / BOX_SUMS<Scalar>; ++box) {
      boxes.store_sums<Scalar>(sum, box, tile.row + first_row + piece * 64, tile.col);
    }
  }
  // Waits until the next step's stage is filled, and returns it.
  __device__ __forceinline__ int next_stage() {
    const int stage = slot.stage;
    ring.filled[stage].wait(slot.parity);
    slot.advance();
    return stage;
  }
};

// The kernel, for 16 bits and, in `wgmma_mixed_bytes`, for 8 bits.
template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__device__ __forceinline__ void multiply_mixed(int M, int N, int K, int wide,
                                               const CUtensorMap* a_map, const CUtensorMap* b_map,
                                               const CUtensorMap* c_map) {
  using R = Roles<BM>;
  static_assert(R::PIECES == 2, "they take turns");
  constexpr int BLOCKS = CM * CN;
  extern __shared__ __align__(1024) unsigned char stages[];  // behind them: buffers of results
  __shared__ Ring<STAGES> ring;

  const MixedTiles<BM, BN, CM, CN, GROUP> tiles(M, N, wide);
  const int steps = max((K + BK - 1) / BK, 4);
  const auto fetch = [&] {
    produce<Blocks::SERPENTINE, BM, BN, BK, BK, IS_8_BITS<Scalar>>(
        ring, R::CONSUMERS * BLOCKS, stages, tiles, 0, steps, a_map, b_map);
  };
  const auto multiply = [&](int warpgroup) {
    const unsigned base = shared_address(stages);
    const ResultBoxes boxes(c_map, base + STAGES * (BM + BN) * ROW_BYTES, warpgroup);
    Consumer<Scalar, BM, BN, STAGES, BLOCKS> consumer{ring, base, boxes, warpgroup * 128};
    // The first tile and the first narrow tile are outside the loops. In a loop that begins without
    // a piece to store, or has both widths, the compiler adds waits.
    const int clusters = gridDim.x / BLOCKS;
    int index = blockIdx.x / BLOCKS;
    Sum<Scalar> sum[2][BN / 2];
    if (index < tiles.wide_count()) {
      consumer.template multiply_tile<false>(sum, sum[1], tiles[index], steps);
      for (index += clusters; index < tiles.wide_count(); index += clusters) {
        consumer.template multiply_tile<true>(sum, sum[1], tiles[index], steps);
      }
    }
    if (index < tiles.count()) {
      Sum<Scalar> narrow[2][NARROW / 2];
      consumer.template multiply_tile<true>(narrow, sum[1], tiles[index], steps);
      for (index += clusters; index < tiles.count(); index += clusters) {
        consumer.template multiply_tile<true>(narrow, narrow[1], tiles[index], steps);
      }
      consumer.store_pending(narrow[1]);
    } else {
      consumer.store_pending(sum[1]);
    }
    consumer.boxes.finish();
  };
  divide_roles<R>(fetch, multiply);
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__(Roles<BM>::THREADS, 1)
wgmma_mixed(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K, int wide,
            const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
            const __grid_constant__ CUtensorMap c_map) {
  multiply_mixed<Scalar, BM, BN, BK, STAGES, CM, CN, GROUP>(M, N, K, wide, &a_map, &b_map, &c_map);
}
