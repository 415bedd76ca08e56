// dmma: float64 on tensor cores: a warp multiplies 16×16 by 16×8 with one instruction.
//
// As in `mma_sync`, operands are in registers. As in `wgmma_cluster`, the TMA fills stages, and
// pairs of blocks share the tiles that they fetch. What is new is the place of each element. Loaded
// in the instruction's numbering, elements come 8 bytes at a time, with bank conflicts. Three
// choices leave only loads of 16 bytes without conflicts. Each load brings two elements that the
// instruction takes from neighbouring registers, so nothing is moved between registers:
//
//   - A and B change places, Cᵀ = Bᵀ·Aᵀ. The operand of 16 rows is 16 columns of B. Its pairs are
//     rows g and g + 8, which become two neighbouring columns.
//   - The order of k is free. Slots t and t + 4 of the instruction become neighbouring values of k.
//     They are the pairs of the other operand, eight rows of A.
//   - The order of the eight rows of A in the instruction is free too. In the order chosen, loads
//     do not meet in a bank of shared memory.
//
// A warp holds all its rows of A for 16 values of k, and passes over its columns of B, which are
// loaded one multiplication ahead. During the last pass each row's registers get the next 16 values
// of k. As in `wgmma_tf32`, all tiles of a block are one stream of steps.
//
// What limits it: power. The multiplications leave few cycles free, so the clock falls until the
// power limit is met, and then the cost of an operation besides its multiplication decides.

#include "../lib/cluster/cluster_gemm.cuh"
#include "../lib/mma/dmma_warp.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP, int PDL>
__global__ void __launch_bounds__(384, 1)
dmma(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
     const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map) {
  using R = Roles<128>;  // two warpgroups multiply
  constexpr int WARPS = 4 * R::CONSUMERS;
  constexpr int WM = BM / 2, WN = BN / 4;  // of a warp: two rows of four
  constexpr int ROWS = WM / 8, COLUMNS = WN / 16;
  constexpr int BLOCKS = CM * CN;
  constexpr int STAGE = (BM + BN) * (BK / DMMA_WIDTH) * ROW_BYTES;
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ Ring<STAGES> ring;

  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int steps = (K + BK - 1) / BK;
  if constexpr (PDL) start_next_launch();
  const auto fetch = [&] {
    produce<Blocks::SERPENTINE, BM, BN, BK, DMMA_WIDTH, false>(
        ring, WARPS * BLOCKS, stages, tiles, 0, steps, &a_map, &b_map);
  };
  const auto multiply = [&](int) {
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    const int lane = threadIdx.x % 32;
    const int warp_row = warp / 4 * WM, warp_col = warp % 4 * WN;
    DmmaOperands<ROWS, COLUMNS, BM, BK, STAGE> operands{
        shared_address(stages) + warp_row * ROW_BYTES + dmma_a_offset(lane),
        shared_address(stages) + BM * (BK / DMMA_WIDTH) * ROW_BYTES +
            warp_col / DMMA_WIDTH * BK * ROW_BYTES + dmma_b_offset(lane)};
    const int clusters = gridDim.x / BLOCKS;
    int index = blockIdx.x / BLOCKS;
    Slot<STAGES> slot;
    if (index < tiles.count()) {
      ring.filled[0].wait(0);
      operands.load_first(0);
    }
    for (; index < tiles.count(); index += clusters) {
      const bool more = index + clusters < tiles.count();
      double sum[COLUMNS][ROWS][4] = {};
      operands.template multiply_steps<BLOCKS>(sum, ring, slot, steps, more);
      const BlockTile tile = tiles[index];
      for_each_pair(sum, tile.row + warp_row, tile.col + warp_col,
                    [&](int row, int col, double2 pair) { store_pair(C, row, col, M, N, pair); });
    }
  };
  divide_roles<R>(fetch, multiply);
}
