// dmma_split_cluster: float64 with small tiles, and K in parts by the blocks of a cluster.
//
// Compared with `dmma`: 456×728×3200 are 48 tiles of 64×128, for 132 multiprocessors. Here a tile's
// rows are a multiple of 16 and its columns a multiple of 32, both from 32 to 128, so nearly every
// shape has a tile. The blocks of a cluster share a tile, each with a part of K, as in
// `wgmma_split_cluster`. A block computes one tile. Up to 96×64, four warps multiply, and two
// blocks fit on a multiprocessor: one multiplies while the other fetches its first stages or
// stores.
//
// The sums of the parts meet in distributed shared memory (`cluster_sums.cuh`). Rows of sums have
// 32 bytes of padding, so that eight lanes write to 32 different banks.
//
// What limits it: 64×64 fetches 32 bytes per clock of multiplication, where 128×128 fetches 16.

#include "../lib/cluster/cluster_sums.cuh"
#include "../lib/cluster/cluster_gemm.cuh"
#include "../lib/mma/dmma_warp.cuh"

// How the warps that multiply divide a tile. Two rows of two warps fit twice on a multiprocessor.
template <int BM, int BN>
struct DmmaWarps {
  static constexpr int COUNT = BM * BN <= 96 * 64 ? 4 : 8;
  static constexpr int DOWN = COUNT == 8 && (BN % 64 || (BM % 32 == 0 && BM >= BN)) ? 4 : 2;
  static constexpr int WM = BM / DOWN, WN = BN / (COUNT / DOWN);  // of a warp
  static constexpr int THREADS = 32 * COUNT + 128;                // one more warpgroup fetches
  static constexpr int CONSUMERS = COUNT / 4;                     // warpgroups
  static constexpr int RESIDENT = 8 / COUNT;                      // blocks
  // Registers of a thread. RESIDENT blocks share 65,536 registers.
  static constexpr int PRODUCER_REGISTERS = 24;
  static constexpr int CONSUMER_REGISTERS = COUNT == 4 ? 232 : 240;
  static_assert(WM % 8 == 0 && WN % 16 == 0, "a warp has 8 rows and 16 columns, or a multiple");
};

template <typename Scalar, int BM, int BN, int BK, int STAGES, int SPLITS, int CM, int CN>
__global__ void __launch_bounds__((DmmaWarps<BM, BN>::THREADS), (DmmaWarps<BM, BN>::RESIDENT))
dmma_split_cluster(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
                   const __grid_constant__ CUtensorMap a_map,
                   const __grid_constant__ CUtensorMap b_map) {
  using W = DmmaWarps<BM, BN>;
  constexpr int GROUP = 8;
  constexpr int BLOCKS = CM * CN;  // that share what they fetch
  constexpr int ROWS = W::WM / 8, COLUMNS = W::WN / 16;
  constexpr int STAGE = (BM + BN) * (BK / DMMA_WIDTH) * ROW_BYTES;
  constexpr int PITCH_BYTES = BN * 8 + 32;
  extern __shared__ __align__(1024) unsigned char stages[];  // later: sums for the other parts
  __shared__ Ring<STAGES> ring;

  const ClusterTiles<BM, BN, CM, CN, GROUP, SPLITS> tiles(M, N);
  const Rank<CM, CN, SPLITS>& rank = tiles.rank;
  const BlockTile tile = tiles[blockIdx.x / (BLOCKS * SPLITS)];
  const StepsOfPart steps((K + BK - 1) / BK, rank.part, SPLITS);
  start_next_launch();
  const auto fetch = [&] {
    produce<Blocks::END, BM, BN, BK, DMMA_WIDTH, false>(
        ring, W::COUNT * BLOCKS, stages, tiles, steps.first, steps.count, &a_map, &b_map);
  };
  const auto multiply = [&](int) {
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    const int lane = threadIdx.x % 32;
    const int warp_row = warp / (W::COUNT / W::DOWN) * W::WM;
    const int warp_col = warp % (W::COUNT / W::DOWN) * W::WN;
    const unsigned base = shared_address(stages);
    DmmaOperands<ROWS, COLUMNS, BM, BK, STAGE> operands{
        base + warp_row * ROW_BYTES + dmma_a_offset(lane),
        base + BM * (BK / DMMA_WIDTH) * ROW_BYTES + warp_col / DMMA_WIDTH * BK * ROW_BYTES +
            dmma_b_offset(lane)};
    double sum[COLUMNS][ROWS][4] = {};
    Slot<STAGES> slot;
    ring.filled[0].wait(0);
    operands.load_first(0);
    operands.template multiply_steps<BLOCKS>(sum, ring, slot, steps.count, false, rank.first);
    if constexpr (SPLITS == 1) {
      for_each_pair(sum, tile.row + warp_row, tile.col + warp_col,
                    [&](int row, int col, double2 pair) { store_pair(C, row, col, M, N, pair); });
    } else {
      PTX("bar.sync 1, %0;", "n"(32 * W::COUNT));  // all stages are read
      for_each_pair(sum, warp_row, warp_col, [&](int row, int col, double2 pair) {
        store_shared(base + row * PITCH_BYTES + col * 8, pair);
      });
      add_parts<SPLITS, BLOCKS, BM, BN, PITCH_BYTES, 32 * W::COUNT, Scalar>(
          base, rank.part, rank.peer(), [&](int row, int col, const Vector<Scalar>& pair) {
            store_pair(C, tile.row + row, tile.col + col, M, N,
                       make_double2(pair.lanes[0], pair.lanes[1]));
          });
    }
  };
  divide_roles<W>(fetch, multiply);
}
