// wgmma_mixed: tiles of two widths, so that all blocks end together.
//
// Against `wgmma_deferred`: a pair of tiles of 256×192 takes 17 % fewer bytes per operation than a
// pair of 128×256, and in the end bytes are watts, and watts are clock. But 4096×4096 are 176 such
// pairs for 66 pairs of multiprocessors: two rounds, and a third one in which 22 have nothing to do.
// So the last columns are cut into tiles of 256×128, on the same registers: 128 wide pairs and 64
// narrow ones are two and one for each of 64, with nothing left over. The host finds how many
// columns are wide.
//
// 192 sums leave no registers for a tile's results. Instead the two pieces of 64 rows that a
// warpgroup has take turns. `-` is a step, `=` the way of results:
//
//     piece 0   - - - - - - - - =====       - - - - - -
//     piece 1       - - - - - - - - - =====     - - - -
//                                     ^ the next tile: two steps of piece 0 alone, while the
//                                       results of piece 1 leave; then piece 1 catches up
//
// What limits it: the watts of the multiplications themselves.

#include "../cluster_tiles.cuh"

// A consumer: two pieces of 64 rows, whose sums are arguments.
template <typename Scalar, int BM, int BN, int STAGES, int BLOCKS>
struct Consumer {
  Ring<STAGES>& ring;
  unsigned stages;
  ResultBoxes boxes;
  int first_row;
  Slot<STAGES> slot = {};
  BlockTile pending = {};  // whose piece 1 is still to be stored; no columns: none

  __device__ __forceinline__ Consumer(Ring<STAGES>& ring, unsigned stages, const CUtensorMap* c_map,
                                      int warpgroup)
      : ring(ring),
        stages(stages),
        boxes(c_map, stages + STAGES * (BM + BN) * ROW_BYTES, warpgroup),
        first_row(warpgroup * 128) {}

  // A tile of at least 4 steps. If there is a piece pending its sums, `last`, leave meanwhile; they
  // may be sum[1].
  template <bool PENDING, int SUMS, int LAST>
  __device__ __forceinline__ void multiply_tile(Sum<Scalar> (&sum)[2][SUMS],
                                                const Sum<Scalar> (&last)[LAST],
                                                const BlockTile& tile, int steps) {
    const int first = next_stage();
    wgmma_fence();
    multiply(sum[0], 0, first, false);
    commit_multiplications();
    int before = next_stage();
    wgmma_fence();
    multiply(sum[0], 0, before, true);
    commit_multiplications();
    if constexpr (PENDING) store_pending(last);
    wgmma_fence();
    multiply(sum[1], 1, first, false);
    commit_multiplications();
    multiply(sum[1], 1, before, true);
    commit_multiplications();
    await_multiplications<1>();
    free_stage<BLOCKS>(ring.freed[first]);
#pragma unroll 1
    for (int step = 2; step < steps - 1; ++step) {
      const int stage = next_stage();
      wgmma_fence();
      multiply(sum[0], 0, stage, true);
      multiply(sum[1], 1, stage, true);
      commit_multiplications();
      await_multiplications<1>();
      free_stage<BLOCKS>(ring.freed[before]);
      before = stage;
    }
    const int end = next_stage();
    wgmma_fence();
    multiply(sum[0], 0, end, true);
    commit_multiplications();
    multiply(sum[1], 1, end, true);
    commit_multiplications();
    await_multiplications<1>();
    free_stage<BLOCKS>(ring.freed[before]);
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
  // Starts to multiply a piece; its group is still open.
  template <int SUMS>
  __device__ __forceinline__ void
  multiply(Sum<Scalar> (&sum)[SUMS], int piece, int stage, bool add) {
    const unsigned at = stages + stage * (BM + BN) * ROW_BYTES;
    multiply_step<Scalar, 2 * SUMS>(sum, at + (first_row + piece * 64) * ROW_BYTES,
                                    at + BM * ROW_BYTES, add);
  }
  template <int SUMS>
  __device__ __forceinline__ void
  store(const Sum<Scalar> (&sum)[SUMS], int piece, const BlockTile& tile) {
#pragma unroll
    for (int box = 0; box < SUMS / BOX_SUMS<Scalar>; ++box) {
      boxes.store_sums<Scalar>(sum, box, tile.row + first_row + piece * 64, tile.col);
    }
  }
  // The stage that the next step is in, once it is filled.
  __device__ __forceinline__ int next_stage() {
    const int stage = slot.stage;
    ring.filled[stage].wait(slot.parity);
    slot.advance();
    return stage;
  }
};

// The kernel. `wgmma_mixed_bytes` is the same in 8 bits.
template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__device__ __forceinline__ void multiply_mixed(int M, int N, int K, int wide,
                                               const CUtensorMap* a_map, const CUtensorMap* b_map,
                                               const CUtensorMap* c_map) {
  using R = Roles<BM>;
  static_assert(R::PIECES == 2, "they take turns");
  constexpr int BLOCKS = CM * CN;
  extern __shared__ __align__(1024) unsigned char stages[];  // behind them: buffers of results
  __shared__ Ring<STAGES> ring;

  const int warpgroup = warpgroup_index();
  const MixedTiles<BM, BN, CM, CN, GROUP> tiles(M, N, wide);
  const int steps = max((K + BK - 1) / BK, 4);
  init_cluster(ring, R::CONSUMERS * BLOCKS);

  if (warpgroup == R::CONSUMERS) {
    lower_registers<R::PRODUCER_REGISTERS>();
    if (threadIdx.x % 128 != 0) return;
    produce<BM, BN, CM, CN, BK, BK, IS_8_BITS<Scalar>>(ring, stages, tiles, steps, a_map, b_map);
  } else {
    raise_registers<R::CONSUMER_REGISTERS>();
    Consumer<Scalar, BM, BN, STAGES, BLOCKS> consumer(ring, shared_address(stages), c_map,
                                                      warpgroup);
    // The first tile and the first narrow one are written out. In a loop that begins without a piece
    // to store, or has both widths, the compiler waits for multiplications before it touches any sums.
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
  }
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__(Roles<BM>::THREADS, 1)
wgmma_mixed(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K, int wide,
            const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
            const __grid_constant__ CUtensorMap c_map) {
  multiply_mixed<Scalar, BM, BN, BK, STAGES, CM, CN, GROUP>(M, N, K, wide, &a_map, &b_map, &c_map);
}
