// wgmma_pingpong: two warpgroups, each with tiles of its own, take turns at the tensor cores.
//
// Compared with `wgmma_fitted`: there the warpgroups of a block share a tile, so the tensor cores
// wait while its results are rounded and stored. 824×6320 with K = 672 are 125 tiles of 168×256,
// whose results take 2.9 of 15.2 µs. Here they are 264 tiles of 104×192, two for each of 132
// blocks. A block stays, and its warpgroups 0 and 1 take its tiles alternately. `#` multiplies, and
// `=` rounds and stores. Time goes from left to right:
//
//     warpgroup 0   # # # # # # = = =       # # # # # # = = =
//     warpgroup 1               # # # # # # = = =       # # # # # # = = =
//                               ^ its turn: warpgroup 0 has started all its multiplications
//
// Only the results of a block's last tile are stored while nothing multiplies.
//
// Words from earlier steps:
//
//     warpgroup   128 threads, which start a multiplication and wait for it later (`wgmma`)
//     TMA         copies a box of a matrix to or from shared memory, for one thread (`bulk_copies`)
//     step        BK values of k of a tile
//     ring        STAGES buffers in shared memory, one for each step that is fetched. A stage has
//                 two barriers, for "it is filled" and "it is free" (`wgmma_ring`)
//     cluster     CM×CN blocks. Those of a column share columns of B, and those of a row share rows
//                 of A: each fetches a part of them for all (`wgmma_cluster`)
//
// Who fetches: one warp of a third warpgroup. It fills the ring with the steps of all tiles of the
// block, tile by tile. So warpgroups 0 and 1 skip the steps of every second tile. They look at no
// stage before their turn: a barrier tells only even rounds of the ring from odd ones, so a stage
// that was filled two rounds earlier would pass for their own.
//
// Whose turn: a warpgroup ends its turn when it has started its last step. The tensor cores
// multiply this step while the other warpgroup starts its first step.
//
// Where sums are: the products are transposed (`fitted_tile.cuh`). An instruction computes 64
// columns of a tile and all its BM rows, so BM is any multiple of 8. A thread has BM/2 sums of each
// 64 columns. 104×256 has the most: 208 sums, of 240 registers.
//
// How results leave: a warpgroup rounds 64 columns of its tile into a box in shared memory, and one
// thread has the TMA copy the box to C. A warpgroup has one box, so its next columns wait until the
// TMA has read the previous ones. The ring has no room for them: it has the other warpgroup's
// steps. For the block's last tile the ring is free, and takes all boxes, side by side.
//
// Edges: the TMA reads zeros outside A and B, and writes nothing outside C. Blocks whose tile lies
// outside C fetch their part for their cluster, too.
//
// What limits it: smaller tiles fetch more, 61 bytes per clock of multiplication for 104×192 where
// 168×256 takes 40. So clusters have up to eight blocks, which divide what they fetch.

#include "../lib/cluster/fitted_tile.cuh"

// Signals to the other warpgroup: "it is your turn" (to warpgroup 0, or with 1 more to warpgroup
// 1), and "I have read the ring". Each is a barrier of 256 threads, where only the receiver waits.
constexpr int TURN = 3, END = 5;

__device__ __forceinline__ void await_signal(int signal) { PTX("bar.sync %0, 256;", "r"(signal)); }
__device__ __forceinline__ void send_signal(int signal) { PTX("bar.arrive %0, 256;", "r"(signal)); }

template <typename Scalar, int BM, int BN, int BK, int STAGES, typename Tiles, typename MapA,
          typename MapB, typename MapC, typename After = Nothing>
__device__ __forceinline__ void
multiply_in_turns(const Tiles& tiles, int K, MapA a_map, MapB b_map, MapC c_map, After after = {}) {
  constexpr int BLOCKS = Tiles::BLOCKS;
  constexpr int PIECES = BN / 64;
  constexpr int STAGE_BYTES = (BM + BN) * ROW_BYTES;
  constexpr int BOX_BYTES = BM * ROW_BYTES;
  constexpr int ROUNDS = BOXES<Sum<Scalar>>;  // of 64 columns: ints of half of the rows fill a box
  constexpr int SUMS = BM / 2 / ROUNDS;       // of a thread in a box
  extern __shared__ __align__(1024) unsigned char stages[];  // behind them: a box of each warpgroup
  __shared__ Ring<STAGES> ring;

  constexpr int FURTHER_STEPS = Tiles::FURTHER_STEPS;  // of a residual
  // Further steps come before the last of at least two steps. Steps beyond K multiply zeros.
  const int steps = max((K + BK - 1) / BK, FURTHER_STEPS > 0 ? 2 : 0);
  const int all_steps = steps + FURTHER_STEPS;
  const int clusters = gridDim.x / BLOCKS;
  const int first = blockIdx.x / BLOCKS;  // this block's tiles: first, first + clusters, ...

  const auto fetch = [&] {  // a stage is free when one warpgroup of each block has read it
    produce<Blocks::STAY, BM, BN, BK, BK, IS_8_BITS<Scalar>>(ring, BLOCKS, stages, tiles, 0, steps,
                                                             a_map, b_map);
  };
  const auto multiply = [&](int warpgroup) {
    const unsigned base = shared_address(stages);
    const unsigned own_box = base + STAGES * STAGE_BYTES + warpgroup * BOX_BYTES;
    Sum<Scalar> sum[PIECES][BM / 2];
    Slot<STAGES> slot, further;
    slot.skip(warpgroup * all_steps);  // warpgroup 1 has the second tile
    for (int index = first + warpgroup * clusters; index < tiles.count(); index += 2 * clusters) {
      after.begin(tiles[index].col);
      if (index != first) await_signal(TURN + warpgroup);
      int previous = 0;  // the stage of the previous step, which is freed one step late
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        if constexpr (FURTHER_STEPS > 0) {
          if (step == steps - 1) further = await_further<FURTHER_STEPS>(ring, slot);
        }
        ring.filled[slot.stage].wait(slot.parity);
        start_fitted<Scalar, BM, BN>(sum, base + slot.stage * STAGE_BYTES, 0, step > 0);
        end_step<BLOCKS>(ring, slot, previous, step == 0);
      }
      const bool last = index + clusters >= tiles.count();  // of the block's tiles
      if (!last) send_signal(TURN + (warpgroup ^ 1));
      await_multiplications<0>();
      free_stage<BLOCKS>(ring.freed[previous]);
      slot.skip(all_steps);  // of the other warpgroup's next tile

      // The last tile's results may use the ring when the other warpgroup has read it, too.
      if (last && index != first) await_signal(END);
      if (!last && index + 2 * clusters >= tiles.count()) send_signal(END);  // last but one
      const BlockTile tile = tiles[index];
      choose_matrix(c_map, tile);
#pragma unroll
      for (int i = 0; i < PIECES * ROUNDS; ++i) {
        const int piece = i / ROUNDS, round = i % ROUNDS;
        const bool in_ring = last && FURTHER_STEPS == 0;
        const unsigned box = in_ring ? base + i * BOX_BYTES : own_box;
        if (!in_ring) await_stored_boxes();  // the TMA has read the box
        synchronize_warpgroup(warpgroup);
        unsigned from = 0;
        if constexpr (FURTHER_STEPS > 0) {
          from = base + further.stage * STAGE_BYTES + Tiles::box(piece);
        }
        put_box<Output<Scalar>, SUMS>(box, sum[piece] + round * SUMS, after, piece, from);
        publish_to_tma();
        synchronize_warpgroup(warpgroup);
        if constexpr (FURTHER_STEPS > 0) {
          if (Tiles::is_last_of_stage(piece)) {
            free_stage<BLOCKS>(ring.freed[further.stage]);
            further.advance();
          }
        }
        leave_box<Sum<Scalar>, SUMS>(c_map, box, tile.row + round * 2 * SUMS,
                                     tile.col + piece * 64);
      }
    }
    await_stored_boxes();
  };
  divide_roles<Roles<128>>(fetch, multiply);
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__(384, 1)
wgmma_pingpong(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
               const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
               const __grid_constant__ CUtensorMap c_map) {
  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  multiply_in_turns<Scalar, BM, BN, BK, STAGES>(tiles, K, &a_map, &b_map, &c_map);
}
