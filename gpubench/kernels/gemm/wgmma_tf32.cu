// wgmma_tf32: float32 on tensor cores: operands rounded to TF32, 10 bits of the significand.
//
// Against `wgmma_cluster`: elements have 4 bytes, and `wgmma` takes them from shared memory along k
// only, but B lies along n. So the operands change places, and columns of B come from registers
// (`tf32.cuh`), without a pass that transposes B. A consumer has 64 columns of C and all BM rows.
// All consumers share the rows of A in shared memory.
//
// The loads must not delay the tensor cores. Each consumer has two sets of registers: while the
// multiplications of a step run, it waits for the next step's stage and loads the other set. So all
// tiles of a block are one stream of steps: the next tile's first load precedes this tile's store.
//
// What limits it: power, as in 16 bits. Issued without a pause, the multiplications lower the clock
// until the power limit is met, and each byte that moves takes part of the power.

#include "../lib/mma/tf32.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP, int PDL>
__global__ void __launch_bounds__(Roles<BN>::THREADS, 1)
wgmma_tf32(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
           const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map) {
  using R = Roles<BN>;
  static_assert(R::PIECES == 1, "64 columns a consumer");
  constexpr int BLOCKS = CM * CN;
  constexpr int STAGE = (BM + BN) * ROW_BYTES;
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ Ring<STAGES> ring;

  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int steps = (K + BK - 1) / BK;
  if constexpr (PDL) start_next_launch();
  const auto fetch = [&] {
    produce<Blocks::SERPENTINE, BM, BN, BK, TF32_WIDTH, false>(
        ring, R::CONSUMERS * BLOCKS, stages, tiles, 0, steps, &a_map, &b_map);
  };
  const auto multiply = [&](int warpgroup) {
    const unsigned a = shared_address(stages);
    const unsigned b = a + (BM + warpgroup * 64) * ROW_BYTES + tf32_offset(threadIdx.x % 128);
    const int clusters = gridDim.x / BLOCKS;
    int index = blockIdx.x / BLOCKS;
    Slot<STAGES> slot;
    float sum[BM / 2];
    Tf32Columns<BK / 4> even, odd;  // of the even and the odd steps of a tile

    if (index < tiles.count()) {
      ring.filled[0].wait(0);
      even.load(b);
    }
    for (; index < tiles.count(); index += clusters) {
      multiply_tf32_steps<BM, STAGE, BLOCKS>(sum, ring, slot, a, b, even, odd, steps,
                                             index + clusters < tiles.count());
      if (steps % 2) even = odd;  // the next tile's first step is loaded already
      const BlockTile tile = tiles[index];
      store_columns<BM>(sum, C, tile.row, tile.col + warpgroup * 64, M, N);
    }
  };
  divide_roles<R>(fetch, multiply);
}
