// wgmma_split: sums of float8 products in two levels, so that they keep their bits.
//
// Against `wgmma_bytes`: a tensor core of Hopper adds float8 products with 14 bits, and cuts off
// the bits below those of the largest term. As a sum grows, more of each product is lost. So every
// PROMOTE values of k the partial sums are added to the full sums in float32, by ordinary
// additions, and begin again at zero. cuBLASLt calls that "no fast accumulation".
//
// This needs two sets of sums. A block of 256×128 has one partial set for both pieces of 64 rows,
// which use it one after the other: while one warpgroup adds, the other multiplies. A wider block
// of 128 rows has one piece, and may add less often.
//
// What limits it: registers. Results are stored at a tile's end, and smaller tiles take more bytes.

#include "../lib/cluster/cluster_gemm.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP,
          int PROMOTE>
__global__ void __launch_bounds__(Roles<BM>::THREADS, 1)
wgmma_split(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
            const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
            const __grid_constant__ CUtensorMap c_map) {
  using R = Roles<BM>;
  constexpr int BLOCKS = CM * CN;
  constexpr int EVERY = PROMOTE / BK;  // steps
  static_assert(EVERY == 1 || R::PIECES == 1, "two pieces share their partial sums");
  extern __shared__ __align__(1024) unsigned char stages[];  // behind them: buffers of results
  __shared__ Ring<STAGES> ring;

  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int steps = (K + BK - 1) / BK;
  const auto fetch = [&] {
    produce<Blocks::SERPENTINE, BM, BN, BK, BK, true>(
        ring, R::CONSUMERS * BLOCKS, stages, tiles, 0, steps, &a_map, &b_map);
  };
  const auto multiply = [&](int warpgroup) {
    const unsigned base = shared_address(stages);
    ResultBoxes boxes(&c_map, base + STAGES * (BM + BN) * ROW_BYTES, warpgroup);
    const int first_row = warpgroup * R::PIECES * 64;
    Slot<STAGES> slot;
    float part[BN / 2];
    for (int index = blockIdx.x / BLOCKS; index < tiles.count(); index += gridDim.x / BLOCKS) {
      float sum[R::PIECES][BN / 2] = {};
#pragma unroll 1
      for (int step = 0; step < steps; ++step, slot.advance()) {
        const unsigned stage = base + slot.stage * (BM + BN) * ROW_BYTES;
        ring.filled[slot.stage].wait(slot.parity);
#pragma unroll
        for (int p = 0; p < R::PIECES; ++p) {
          wgmma_fence();
          multiply_step<Scalar, BN>(part, stage + (first_row + p * 64) * ROW_BYTES,
                                    stage + BM * ROW_BYTES, step % EVERY > 0);
          commit_multiplications();
          await_multiplications<0>();
          fence_sums(part);
          if (p == R::PIECES - 1) free_stage<BLOCKS>(ring.freed[slot.stage]);
          if (step % EVERY == EVERY - 1 || step == steps - 1) {
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) sum[p][i] += part[i];
          }
        }
      }
      const BlockTile tile = tiles[index];
      boxes.store_tile<Scalar>(sum, tile.row + first_row, tile.col);
    }
    boxes.finish();
  };
  divide_roles<R>(fetch, multiply);
}
