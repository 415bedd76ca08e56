// wgmma_deferred: a tile's results are stored while the next tile is multiplied.
//
// Against `wgmma_cluster`: at a tile's end the sums, 128 registers, are rounded to 64 registers of
// pairs, and the next tile begins at once. During each of its first steps one box of 64×64 results
// is stored, between the start of that step's multiplications and the wait for them, when the
// threads would only wait. So the tensor cores are idle only during the rounding. The registers are
// full: 128 sums, 64 pairs of results, and addresses.
//
// A tile has at least as many steps as boxes. If K is shorter, the TMA fetches zeros.
//
// A block requests its own part of its first step before its cluster has met (`produce`):
// with one tile for each block, as at 2048, that is 1 % of the time.
//
// What limits it: blocks of 128×256 fetch the same operands many times. A larger tile would fetch
// less, but leaves no registers for the pairs.

#include "../lib/cluster/cluster_gemm.cuh"

template <int N>
struct Width {
  static constexpr int COLUMNS = N;
};

// The work of a block: here with 16 bits, and in `wgmma_bytes` with 8 bits and tiles of two widths.
template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, typename Tiles>
__device__ __forceinline__ void
multiply_deferred(const Tiles& tiles, int K, const CUtensorMap* a_map, const CUtensorMap* b_map,
                  const CUtensorMap* c_map) {
  using R = Roles<BM>;
  constexpr int BLOCKS = CM * CN;
  constexpr int ACROSS = BN / BOX_COLUMNS<Scalar>;
  constexpr int BOXES = R::PIECES * ACROSS;                  // of a consumer
  extern __shared__ __align__(1024) unsigned char stages[];  // behind them: buffers of results
  __shared__ Ring<STAGES> ring;

  const int steps = max((K + BK - 1) / BK, BOXES);
  const auto fetch = [&] {
    produce<Blocks::SERPENTINE, BM, BN, BK, BK, IS_8_BITS<Scalar>>(
        ring, R::CONSUMERS * BLOCKS, stages, tiles, 0, steps, a_map, b_map);
  };
  const auto multiply = [&](int warpgroup) {
    const unsigned base = shared_address(stages);
    ResultBoxes boxes(c_map, base + STAGES * (BM + BN) * ROW_BYTES, warpgroup);
    const int first_row = warpgroup * R::PIECES * 64;
    Slot<STAGES> slot;
    int previous = 0;
    Sum<Scalar> sum[R::PIECES][BN / 2];
    unsigned results[BOXES][16];  // of the previous tile
    BlockTile of_results = {};    // without columns: no results wait yet

    const auto store_box = [&](int box) {
      const int col = box % ACROSS * BOX_COLUMNS<Scalar>;
      if (col < of_results.columns) {
        boxes.store<RESULT_BYTES<Scalar>>(
            results[box], of_results.row + first_row + box / ACROSS * 64, of_results.col + col);
      }
    };
    const auto multiply_tile = [&](auto width) {
      constexpr int WIDTH = decltype(width)::COLUMNS;
#pragma unroll  // results are in registers: their numbers must be constants
      for (int step = 0; step < BOXES; ++step) {
        start_step<Scalar, BM, BN, WIDTH>(sum, ring, slot, base, first_row, step > 0);
        store_box(step);
        end_step<BLOCKS>(ring, slot, previous, step == 0);
      }
#pragma unroll 1
      for (int step = BOXES; step < steps; ++step) {
        start_step<Scalar, BM, BN, WIDTH>(sum, ring, slot, base, first_row, true);
        end_step<BLOCKS>(ring, slot, previous, false);
      }
      await_multiplications<0>();
      free_stage<BLOCKS>(ring.freed[previous]);
#pragma unroll
      for (int box = 0; box < BOXES; ++box) {
        if (box % ACROSS * BOX_COLUMNS<Scalar> >= WIDTH) continue;
        take_results<Scalar>(results[box], sum[box / ACROSS] + box % ACROSS * BOX_SUMS<Scalar>);
      }
    };

    for (int index = blockIdx.x / BLOCKS; index < tiles.count(); index += gridDim.x / BLOCKS) {
      const BlockTile tile = tiles[index];
      if (BN % NARROW == 0 || tile.columns == BN) {  // multiples of NARROW have no narrow tiles
        multiply_tile(Width<BN>());
      } else {
        multiply_tile(Width<NARROW>());
      }
      of_results = tile;
    }
#pragma unroll
    for (int box = 0; box < BOXES; ++box) store_box(box);
    boxes.finish();
  };
  if (threadIdx.x == 0) prefetch_map(c_map);
  divide_roles<R>(fetch, multiply);
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__(Roles<BM>::THREADS, 1)
wgmma_deferred(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
               const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
               const __grid_constant__ CUtensorMap c_map) {
  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  multiply_deferred<Scalar, BM, BN, BK, STAGES, CM, CN>(tiles, K, &a_map, &b_map, &c_map);
}
