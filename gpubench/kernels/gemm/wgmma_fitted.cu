// wgmma_fitted: a tile for every shape, and a block for every tile.
//
// Compared with `wgmma_mixed`: 840×5048 are 140 tiles of 128×256 for 132 multiprocessors, so nearly
// all of them wait for the last eight tiles. There are 120 tiles of 144×256, and each takes 1.1
// times as long. So a tile has nearly any size (`fitted_tile.cuh`), and the host chooses it. A
// block computes one tile and ends: only the start of the next launch overlaps its end (PDL).
//
// What limits it: small tiles fetch operands more often, 64 bytes per clock of multiplication for
// 128×128 where 256×128 takes 48. Up to eight blocks of a cluster share them: in clusters of 4×2, a
// block sends a quarter of the columns and half of the rows. A long K has few
// blocks.

#include "../lib/cluster/fitted_tile.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP, int PDL>
__global__ void __launch_bounds__((FittedTile<BM, BN>::THREADS), 1)
wgmma_fitted(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
             const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
             const __grid_constant__ CUtensorMap rest_map,
             const __grid_constant__ CUtensorMap c_map) {
  static_assert(BM * BN * 2 <= STAGES * FittedTile<BM, BN>::STAGE_BYTES, "results fit");
  extern __shared__ __align__(1024) unsigned char stages[];
  compute_tile<Scalar, BM, BN, BK, STAGES, 1, CM, CN, GROUP, PDL>(
      stages, C, M, N, K, &a_map, &b_map, &rest_map,
      [&](auto& sum, unsigned ring, const auto&, int warpgroup, const auto& to) {
        store_through_ring<BM, BN>(sum, ring, &c_map, warpgroup, to);
      });
}
