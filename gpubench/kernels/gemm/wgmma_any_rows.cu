// wgmma_any_rows: rows of any length, by a copy in front of the product.
//
// Compared with `wgmma_split_cluster`: the TMA takes only rows that begin at multiples of 16 bytes.
// So a first launch copies each operand with other rows into a workspace, where each row begins a
// line of the L2 cache. Meanwhile the product's blocks start, and wait when their barriers are
// ready. The tensor maps end where the rows end: what lies between the copied rows is never read.
//
//     pad_rows         warp: at most 1 KiB of a row; two words loaded for each one stored
//     wgmma_any_rows   the product on A or its copy, and B or its copy
//
// Results have no copy: they leave as sums of 32 bits (`any_results.cuh`).
//
// What limits it: small products. Each operand that is copied is read and written once more, and
// the copy takes 2 µs however small it is.

#include "../lib/cluster/any_results.cuh"
#include "../lib/tma/padded_rows.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int SPLITS, int CM, int CN,
          int GROUP, int PDL>
__global__ void __launch_bounds__((FittedTile<BM, BN>::THREADS), 1)
wgmma_any_rows(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
               const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
               const __grid_constant__ CUtensorMap rest_map) {
  extern __shared__ __align__(1024) unsigned char stages[];
  compute_tile<Scalar, BM, BN, BK, STAGES, SPLITS, CM, CN, GROUP, PDL>(
      stages, C, M, N, K, &a_map, &b_map, &rest_map,
      [&](auto& sum, unsigned ring, const auto& rank, int warpgroup, const auto& to) {
        store_sums<Scalar, BM, BN>(sum, ring, rank, warpgroup, to);
      });
}
