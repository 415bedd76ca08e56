// wgmma_pingpong: two warpgroups, each with tiles of its own, take turns at the tensor cores.
//
// Compared with `wgmma_fitted`: there a block's warpgroups share a tile, so the tensor cores wait
// while both round and store their results. 824×6320 with K = 672 are 125 tiles of 168×256, whose
// results take 2.9 of 15.2 µs. Here they are 264 tiles of 104×192, two for each of 132 blocks. A
// block stays, and each warpgroup has every second of its tiles. `#` multiplies, and `=` stores.
// Time goes from left to right:
//
//     warpgroup 0   # # # # # # = = =       # # # # # # = = =
//     warpgroup 1               # # # # # # = = =       # # # # # # = = =
//                               ^ its turn: warpgroup 0 has started all its multiplications
//
// Only the last tile's results have nothing to hide behind, and they are half as many.
//
// Earlier steps explain the rest. `wgmma` has the instruction, which a warpgroup (128 threads)
// starts and later waits for. `wgmma_ring` has the ring of stages, whose barriers stand for
// __syncthreads(). `wgmma_cluster` has clusters of CM×CN blocks, which share what they fetch, and
// the order of tiles.
//
// Who fetches: a third warpgroup, of which one warp works. It fills the ring with the steps of all
// tiles of the block, BK values of k each, one tile after the other. A warpgroup skips the steps of
// the other one's tiles. It looks at no stage before its turn: a stage's barrier tells only odd
// rounds from even ones, so a round too early it would take other steps for its own.
//
// Whose turn: a warpgroup gives the turn away when it has started its last step. The tensor cores
// have work until the other one starts its first step. END is one more such signal, once per block:
// the other warpgroup has read the ring, too.
//
// Where sums are: the products are transposed (`fitted_tile.cuh`). An instruction multiplies 64
// columns by BM rows, so rows come by 8, and a thread has BM/2 sums of each 64 columns. 208 sums of
// 104×256 are the most, of 240 registers.
//
// How results leave: a warpgroup rounds 64 columns of its tile into a box in shared memory, and one
// thread has the TMA copy the box to C. While the other warpgroup needs the ring, there is one box,
// and the next columns wait until the TMA has read it. The last tile has boxes in the free ring.
//
// What limits it: smaller tiles fetch operands more often, 61 bytes per clock of multiplication for
// 104×192 where 168×256 takes 40. So clusters have up to eight blocks, and a block fetches as much
// as its share of what they need together.

#include "../lib/cluster/fitted_tile.cuh"

// Named barriers of both warpgroups that multiply: TURN + w begins the turn of warpgroup w. The
// threads of one warpgroup wait there until those of the other one, which go on, have arrived.
constexpr int TURN = 3, END = 5;

__device__ __forceinline__ void await_other(int barrier) {
  asm volatile("bar.sync %0, 256;" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void release_other(int barrier) {
  asm volatile("bar.arrive %0, 256;" ::"r"(barrier) : "memory");
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__device__ __forceinline__ void
multiply_in_turns(int M, int N, int K, const CUtensorMap* a_map, const CUtensorMap* b_map,
                  const CUtensorMap* c_map) {
  constexpr int BLOCKS = CM * CN;
  constexpr int PIECES = BN / 64;
  constexpr int STAGE_BYTES = (BM + BN) * ROW_BYTES;
  constexpr int BOX_BYTES = BM * ROW_BYTES;
  extern __shared__ __align__(1024) unsigned char stages[];  // behind them: boxes of results
  __shared__ Ring<STAGES> ring;

  const int warpgroup = warpgroup_index();
  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int steps = (K + BK - 1) / BK;
  const int clusters = gridDim.x / BLOCKS;
  const int first = blockIdx.x / BLOCKS;  // this block's tiles: first, first + clusters, ...

  if (warpgroup == 2) {
    lower_registers<24>();
    if (threadIdx.x % 128 >= 32) return;  // a warp fetches
    produce_early<true, BM, BN, BK, IS_8_BITS<Scalar>>(
        ring, BLOCKS, stages, tiles, first, clusters, StepsOfPart(steps, 0, 1), a_map, b_map,
        nullptr);
  } else {
    raise_registers<240>();
    meet_cluster();
    const unsigned base = shared_address(stages);
    const unsigned own_box = base + STAGES * STAGE_BYTES + warpgroup * BOX_BYTES;
    float sum[PIECES][BM / 2];
    Slot<STAGES> slot;
    slot.skip(warpgroup * steps);
    for (int index = first + warpgroup * clusters; index < tiles.count(); index += 2 * clusters) {
      if (index != first) await_other(TURN + warpgroup);
      int before = 0;  // the stage of the previous step, which is freed one step late
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        ring.filled[slot.stage].wait(slot.parity);
        start_fitted<Scalar, BM, BN>(sum, base + slot.stage * STAGE_BYTES, 0, step > 0);
        end_step<BLOCKS>(ring, slot, before, step == 0);
      }
      const bool last = index + clusters >= tiles.count();
      if (!last) release_other(TURN + (warpgroup ^ 1));
      await_multiplications<0>();
      free_stage<BLOCKS>(ring.freed[before]);
      slot.skip(steps);

      // The last tile's results go through the ring when both warpgroups have read it.
      if (last && index != first) await_other(END);
      if (!last && index + 2 * clusters >= tiles.count()) release_other(END);
      const BlockTile tile = tiles[index];
#pragma unroll
      for (int p = 0; p < PIECES; ++p) {
        const unsigned box = last ? base + p * BOX_BYTES : own_box;
        if (!last) await_stored_boxes();
        synchronize_warpgroup(warpgroup);
        put_box<Output<Scalar>>(box, sum[p]);
        publish_to_tma();
        synchronize_warpgroup(warpgroup);
        if (threadIdx.x % 128 == 0) store_box(c_map, box, tile.row, tile.col + p * 64);
      }
    }
    await_stored_boxes();
  }
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__(384, 1)
wgmma_pingpong(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
               const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
               const __grid_constant__ CUtensorMap c_map) {
  multiply_in_turns<Scalar, BM, BN, BK, STAGES, CM, CN, GROUP>(M, N, K, &a_map, &b_map, &c_map);
}
