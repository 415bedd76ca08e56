// wgmma_bytes: operands of 8 bits, int8 or float8, with B along k.
//
// Against `wgmma_deferred`: a row of 128 bytes holds 128 values, and an instruction multiplies the
// same number of bytes of k in the same time, so twice the operations. But with 8 bits it takes B
// along k only, like A. So B is N×K, and its columns are fetched by boxes like A's rows. float8
// rounds to bfloat16, and its sums have 14 bits in the tensor core (`wgmma_split` adds up parts of
// them outside). int8 is exact.
//
// Results of int8 have 32 bits. The product takes half the time, so writing C is a larger part of
// it. If all blocks wrote at once, they would then all read at once. So here too a tile's results
// are stored during the next tile. They wait in as many registers as there are sums, which leaves
// room for 192 columns. The last columns are narrower tiles, on the same registers, so that all
// blocks end together: 4096×4096 is four tiles of 192 columns and two of 128 for each of 128 blocks
// (`MixedTiles`).
//
// What limits it: operands from the L2 cache, twice as many bytes per clock as with 16 bits.

#include "../lib/cluster/cluster_gemm.cuh"

template <int N>
struct Width {
  static constexpr int COLUMNS = N;
};

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__(Roles<BM>::THREADS, 1)
wgmma_bytes(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K, int wide,
            const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
            const __grid_constant__ CUtensorMap c_map) {
  using R = Roles<BM>;
  constexpr int BLOCKS = CM * CN;
  constexpr int ACROSS = BN / BOX_COLUMNS<Scalar>;
  constexpr int BOXES = R::PIECES * ACROSS;                  // of a consumer
  extern __shared__ __align__(1024) unsigned char stages[];  // behind them: buffers of results
  __shared__ Ring<STAGES> ring;

  const MixedTiles<BM, BN, CM, CN, GROUP> tiles(M, N, wide);
  const int steps = max((K + BK - 1) / BK, BOXES);
  const auto multiply = [&](int warpgroup) {
    const unsigned base = shared_address(stages);
    ResultBoxes boxes(&c_map, base + STAGES * (BM + BN) * ROW_BYTES, warpgroup);
    const int first_row = warpgroup * R::PIECES * 64;
    Slot<STAGES> slot;
    int before = 0;
    Sum<Scalar> sum[R::PIECES][BN / 2];
    unsigned results[BOXES][16];  // of the tile before
    BlockTile of_results = {};    // no columns: there are none yet

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
        end_step<BLOCKS>(ring, slot, before, step == 0);
      }
#pragma unroll 1
      for (int step = BOXES; step < steps; ++step) {
        start_step<Scalar, BM, BN, WIDTH>(sum, ring, slot, base, first_row, true);
        end_step<BLOCKS>(ring, slot, before, false);
      }
      await_multiplications<0>();
      free_stage<BLOCKS>(ring.freed[before]);
#pragma unroll
      for (int box = 0; box < BOXES; ++box) {
        if (box % ACROSS * BOX_COLUMNS<Scalar> >= WIDTH) continue;
        take_results<Scalar>(results[box], sum[box / ACROSS] + box % ACROSS * BOX_SUMS<Scalar>);
      }
    };

    for (int index = blockIdx.x / BLOCKS; index < tiles.count(); index += gridDim.x / BLOCKS) {
      const BlockTile tile = tiles[index];
      if (BN % NARROW == 0 || tile.columns == BN) {  // else all are of one width
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
  divide_roles<R, false>(
      ring, R::CONSUMERS * BLOCKS,
      [&] { produce<BM, BN, CM, CN, BK, BK, true>(ring, stages, tiles, steps, &a_map, &b_map); },
      multiply);
}
