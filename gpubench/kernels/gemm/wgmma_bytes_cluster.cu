// wgmma_bytes_cluster: 8 bits for any shape: tiles of nearly any size, and K in parts.
//
// Compared with `wgmma_bytes`: 512×512×8192 are 12 tiles of 128×192, so most multiprocessors are
// idle. Here the host chooses the tile's size, as in `wgmma_fitted`, and the blocks of a cluster
// share a tile, as in `wgmma_split_cluster`. With 8 bits both operands lie along k, so the
// instruction takes either A or B as its operand of 64 rows.
//
// Results of float8 leave as in 16 bits (`fitted_tile.cuh`, `split_sums.cuh`) if rows of C are a
// multiple of 16 bytes, and so do ints of whole and transposed tiles. Other results leave as sums
// of 32 bits (`any_results.cuh`), for any N. If K is no multiple of 16, A and B are copied first,
// as in `wgmma_any_rows`.
//
// What limits it: a block computes one tile, and nothing overlaps its end.

#include "../lib/cluster/any_results.cuh"
#include "../lib/cluster/split_sums.cuh"
#include "../lib/tma/padded_rows.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int SPLITS, int CM, int CN>
__global__ void __launch_bounds__((FittedTile<BM, BN>::THREADS), 1)
wgmma_bytes_cluster(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
                    const __grid_constant__ CUtensorMap a_map,
                    const __grid_constant__ CUtensorMap b_map,
                    const __grid_constant__ CUtensorMap c_map) {
  constexpr int GROUP = 8;
  extern __shared__ __align__(1024) unsigned char stages[];
  compute_tile<Scalar, BM, BN, BK, STAGES, SPLITS, CM, CN, GROUP, true>(
      stages, C, M, N, K, &a_map, &b_map, static_cast<const CUtensorMap*>(nullptr),
      [&](auto& sum, unsigned ring, const auto& rank, int warpgroup, const auto& to) {
        if constexpr (RESULT_BYTES<Scalar> == 2 || (SPLITS == 1 && BN % 64 == 0)) {
          if (N % (16 / RESULT_BYTES<Scalar>) == 0) {
            if constexpr (SPLITS == 1) {
              store_through_ring<BM, BN>(sum, ring, &c_map, warpgroup, to);
            } else {
              add_units<BM, BN>(sum, ring, rank, warpgroup, to);
            }
            return;
          }
        }
        store_sums<Scalar, BM, BN>(sum, ring, rank, warpgroup, to);
      });
}
