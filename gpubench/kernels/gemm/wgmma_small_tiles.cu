// wgmma_small_tiles: a tile for every shape, and a block for every tile.
//
// Against `wgmma_cluster`: 1000×1000 are 32 tiles of 128×256 for 132 multiprocessors, but 128 tiles of
// 64×128. So a tile has 64 to 256 rows and columns in steps of 64, and a block computes one and ends.
// It has nothing to overlap its end with but the start of the next launch (PDL): results leave
// through the ring that fetched operands, and with 64×64 to 128×128 elements and few stages two
// blocks fit a multiprocessor.
//
// What limits it: at a small tile operands are fetched more often, 64 KiB for 128×128×64 where
// 256×128 takes 48. And a deep K stays with the few blocks that have tiles.

#include "../single_tile.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP, int PDL>
__global__ void __launch_bounds__(SingleTile<BM, BN>::THREADS, 1)
wgmma_small_tiles(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
                  const __grid_constant__ CUtensorMap a_map,
                  const __grid_constant__ CUtensorMap b_map,
                  const __grid_constant__ CUtensorMap c_map) {
  using T = SingleTile<BM, BN>;
  constexpr int BLOCKS = CM * CN;
  static_assert(BM * BN * RESULT_BYTES<Scalar> <= STAGES * (BM + BN) * ROW_BYTES, "results fit");
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ Ring<STAGES> ring;

  const int warpgroup = warpgroup_index();
  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const BlockTile tile = tiles[blockIdx.x / BLOCKS];
  const StepsOfPart steps((K + BK - 1) / BK, 0, 1);
  init_cluster(ring, T::CONSUMERS * BLOCKS);
  if constexpr (PDL) start_next_launch();

  if (warpgroup == T::CONSUMERS) {
    if constexpr (T::MOVES_REGISTERS) lower_registers<T::PRODUCER_REGISTERS>();
    if (threadIdx.x % 128 != 0) return;
    if constexpr (PDL) wait_for_previous_launch();
    produce_steps<BM, BN>(ring, stages, tiles.rank, tile, steps, &a_map, &b_map);
  } else {
    if constexpr (T::MOVES_REGISTERS) raise_registers<T::CONSUMER_REGISTERS>();
    Slot<STAGES> slot;
    float sum[T::PIECES][BN / 2];
    multiply_tile<Scalar, BM, BN, BLOCKS>(sum, ring, slot, shared_address(stages), warpgroup,
                                          steps.count);
    store_through_ring<Scalar, T::CONSUMERS>(sum, shared_address(stages), &c_map, warpgroup,
                                             tile.row, tile.col);
  }
}
