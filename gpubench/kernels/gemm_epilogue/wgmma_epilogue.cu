// wgmma_epilogue: `wgmma_split_cluster` of gemm, which finishes sums before they leave.
//
// Compared with `fused_tile`: tensor cores multiply, and the TMA copies. The sums are transposed
// (`fitted_tile.cuh`), so a thread has two columns of every 64, and reads their bias before it
// multiplies. It adds the bias, and computes the activation with two instructions of the special
// function unit, eight sums at a time, as it rounds them on their way to shared memory
// (`finish.cuh`).
//
// A residual comes by the TMA while the tile is multiplied: it is a further step of the tile, and
// takes a stage or two of the ring before the last step of K. The results take its place there. If
// blocks share a tile, each with a part of K, each thread reads the part of the residual that it
// completes.
//
// What limits it: a block's end, which only the next launch overlaps. 128×128 results keep the
// special function units busy for 2,048 clocks, as long as the tensor cores need for 256 of K. No
// launch on an H200 takes less than its bytes at 4.8 TB/s, or its operations at 989 TFLOP/s:
//
//     gelu, 2048×2048×2048               25 MB  5.2 µs    17.2 GFLOP 17.4 µs    256 tiles of 128×128
//     gelu, 512×4096×1024                14 MB  2.8 µs     4.3 GFLOP  4.3 µs    128 tiles
//     bias and residual, 8192×1024×256   38 MB  8.0 µs     4.3 GFLOP  4.3 µs    512 tiles
//
// Operations limit the first problem, and 3 % of the time is idle: two rounds of tiles for 132
// multiprocessors. The end limits the second problem, where each block has one tile: 1.1 µs of
// special functions, and then the store. Bytes limit the third problem.

#include "../lib/epilogue/finish.cuh"

constexpr int GROUP = 8;  // rows of tiles that are computed together

// Computes a block's tile, or its part of K of a tile. `after` finishes the sums.
template <typename Scalar, int BM, int BN, int BK, int STAGES, int SPLITS, typename Tiles,
          typename After>
__device__ __forceinline__ void
compute_and_finish(const Tiles& tiles, After after, Scalar* C, int M, int N, int K,
                   const CUtensorMap* a_map, const CUtensorMap* b_map, const CUtensorMap* c_map) {
  static_assert(BN % 64 == 0, "sums are transposed");
  using T = FittedTile<BM, BN>;
  extern __shared__ __align__(1024) unsigned char stages[];
  compute_tile_of<Scalar, BM, BN, BK, STAGES, true>(
      tiles, stages, C, M, N, K, a_map, b_map, static_cast<const CUtensorMap*>(nullptr),
      [&](int warpgroup, const BlockTile& tile) {
        wait_for_previous_launch();
        after.begin(tile.col + warpgroup * T::PIECES * 64);
      },
      [&](auto& sum, unsigned base, int warpgroup, const auto& to, auto& ring, auto further) {
        if constexpr (SPLITS > 1) {
          add_units<BM, BN>(sum, base, tiles.rank, warpgroup, to, after);
        } else if constexpr (Tiles::FURTHER_STEPS > 0) {
          store_through_residual<BM, BN>(sum, base, ring, further, tiles, c_map, warpgroup, to,
                                         after);
        } else {
          store_through_ring<BM, BN>(sum, base, c_map, warpgroup, to, after);
        }
      });
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int SPLITS, int CM, int CN,
          typename Act>
__global__ void __launch_bounds__((FittedTile<BM, BN>::THREADS), 1)
wgmma_epilogue(const Scalar* A, const Scalar* B, const Scalar* bias, Scalar* C, int M, int N, int K,
               const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
               const __grid_constant__ CUtensorMap c_map) {
  const ClusterTiles<BM, BN, CM, CN, GROUP, SPLITS> tiles(M, N);
  const Finish<Scalar, Act, false, FittedTile<BM, BN>::PIECES> after(bias, nullptr, N);
  compute_and_finish<Scalar, BM, BN, BK, STAGES, SPLITS>(tiles, after, C, M, N, K, &a_map, &b_map,
                                                         &c_map);
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int SPLITS, int CM, int CN,
          typename Act>
__global__ void __launch_bounds__((FittedTile<BM, BN>::THREADS), 1)
wgmma_epilogue_residual(const Scalar* A, const Scalar* B, const Scalar* bias,
                        const Scalar* residual, Scalar* C, int M, int N, int K,
                        const __grid_constant__ CUtensorMap a_map,
                        const __grid_constant__ CUtensorMap b_map,
                        const __grid_constant__ CUtensorMap c_map,
                        const __grid_constant__ CUtensorMap residual_map) {
  using Tiles = ClusterTiles<BM, BN, CM, CN, GROUP, SPLITS>;
  const Finish<Scalar, Act, true, FittedTile<BM, BN>::PIECES> after(bias, residual, N);
  if constexpr (SPLITS > 1) {
    compute_and_finish<Scalar, BM, BN, BK, STAGES, SPLITS>(Tiles(M, N), after, C, M, N, K, &a_map,
                                                           &b_map, &c_map);
  } else {
    const TilesWithResidual<Tiles, BM, BN> tiles(M, N, &residual_map);
    compute_and_finish<Scalar, BM, BN, BK, STAGES, SPLITS>(tiles, after, C, M, N, K, &a_map, &b_map,
                                                           &c_map);
  }
}
