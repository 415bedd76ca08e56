// wgmma_tf32_wide: three warpgroups multiply 192 columns, and one of their threads fetches.
//
// Against `wgmma_tf32`: a block of 256×192 fetches 22 % fewer bytes per operation than one of
// 256×128. A third consumer of 128 sums leaves no registers for a warpgroup that only fetches: each
// of 512 threads would have 128 registers. So thread 0 fetches, right after its warpgroup has
// started to multiply, when its threads would only wait. It requests the step that comes STAGES - 1
// later, into the stage that the previous step has used.
//
// With 168 registers per thread there is no second set of columns either. A step is two halves:
// each loads its columns, multiplies, and waits. The other two warpgroups fill the gap.
//
// 232 rows instead of 256 are for M and N near 4096: 18·22 such tiles are three for each of 132
// multiprocessors, where 16·22 tiles are 2.7.
//
// A tile has at least as many steps as are fetched ahead. If K is shorter, the TMA fetches zeros.
//
// What limits it: power, as before.

#include "../lib/mma/tf32.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__(BN * 2, 1)
wgmma_tf32_wide(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
                const __grid_constant__ CUtensorMap a_map,
                const __grid_constant__ CUtensorMap b_map) {
  constexpr int WARPGROUPS = BN / 64;
  constexpr int BLOCKS = CM * CN;
  constexpr int AHEAD = STAGES - 1;
  constexpr int STAGE = (BM + BN) * ROW_BYTES;
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ Ring<STAGES> ring;

  const int warpgroup = warpgroup_index();
  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int steps = max((K + BK - 1) / BK, AHEAD);
  const int clusters = gridDim.x / BLOCKS;
  if (threadIdx.x == 0) ring.init(WARPGROUPS * BLOCKS);
  __syncwarp();
  meet_cluster();

  const auto fetch = [&](int stage, const BlockTile& tile, int step, bool backwards) {
    fetch_step<BM, BN, BK, TF32_WIDTH>(ring.filled[stage], stages + stage * STAGE, tiles.rank, tile,
                                       (backwards ? steps - 1 - step : step) * BK, &a_map, &b_map);
  };
  const unsigned a = shared_address(stages);
  const unsigned b = a + (BM + warpgroup * 64) * ROW_BYTES + tf32_offset(threadIdx.x % 128);
  int index = blockIdx.x / BLOCKS;
  BlockTile tile = tiles[index];  // there is one: the grid has no more clusters than tiles
  if (threadIdx.x == 0) {
    for (int step = 0; step < AHEAD; ++step) fetch(step, tile, step, false);
  }
  __syncwarp();

  Slot<STAGES> slot;
  bool backwards = false;  // every second tile runs through k from its end
  float sum[BM / 2];
  for (; index < tiles.count(); index += clusters) {
    // The next tile needs divisions. All threads compute it here, so that none waits for thread 0.
    const bool is_last = index + clusters >= tiles.count();
    const BlockTile next = tiles[is_last ? index : index + clusters];
#pragma unroll 1
    for (int step = 0; step < steps; ++step, slot.advance()) {
      const unsigned stage = slot.stage * STAGE;
      ring.filled[slot.stage].wait(slot.parity);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Tf32Columns<BK / 8> columns;
        columns.load(b + stage, half * BK / 8);
        wgmma_fence();
        multiply_columns<BM>(sum, columns, a + stage + half * ROW_BYTES / 2, step + half > 0);
        commit_multiplications();
        if (half == 0) {
          const bool in_next = step + AHEAD >= steps;
          if (threadIdx.x == 0 && !(in_next && is_last)) {
            // The last round of the previous stage. The very first stage has no previous round.
            const bool wraps = slot.stage == 0;
            const int stage = wraps ? AHEAD : slot.stage - 1;
            ring.freed[stage].wait(slot.parity ^ wraps);
            const BlockTile of = {in_next ? next.row : tile.row, in_next ? next.col : tile.col, BN};
            fetch(stage, of, step + AHEAD - (in_next ? steps : 0), backwards != in_next);
          }
          __syncwarp();
        }
        await_multiplications<0>();
      }
      free_stage<BLOCKS>(ring.freed[slot.stage]);
    }
    store_columns<BM>(sum, C, tile.row, tile.col + warpgroup * 64, M, N);
    tile = next;
    backwards = !backwards;
  }
  if (threadIdx.x == 0) await_all_freed(ring, slot);
}
