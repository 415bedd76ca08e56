// wgmma_split_cluster: the blocks of a cluster share a tile, each with a part of K.
//
// Compared with `wgmma_fitted`: 1088×936×5456 are 30 tiles of 192×192, and each has 86 steps. With
// four blocks for each tile, 120 multiprocessors have 21 or 22 steps each. `splitk` in float32 uses
// device memory and a second launch for this. Here the parts are blocks of one cluster, whose sums
// meet in each other's shared memory (`split_sums.cuh`).
//
// A cluster has SPLITS groups of CM×CN blocks. Blocks of a group have the same part of K and share
// what they fetch, as in `wgmma_cluster`. Blocks at the same place of all groups share a tile.
//
// What limits it: a cluster lies in one part of the GPU. Of 132 multiprocessors of an H200,
// clusters of three, four and eight blocks reach 117, 120 and 120. Adding up takes a few µs.

#include "../lib/cluster/split_sums.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int SPLITS, int CM, int CN,
          int GROUP, int PDL>
__global__ void __launch_bounds__((FittedTile<BM, BN>::THREADS), 1)
wgmma_split_cluster(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
                    const __grid_constant__ CUtensorMap a_map,
                    const __grid_constant__ CUtensorMap b_map,
                    const __grid_constant__ CUtensorMap rest_map) {
  extern __shared__ __align__(1024) unsigned char stages[];
  compute_tile<Scalar, BM, BN, BK, STAGES, SPLITS, CM, CN, GROUP, PDL>(
      stages, C, M, N, K, &a_map, &b_map, &rest_map,
      [&](auto& sum, unsigned ring, const auto& rank, int warpgroup, const auto& to) {
        add_units<BM, BN>(sum, ring, rank, warpgroup, to);
      });
}
