// wgmma_batched_pingpong: the turns of two warpgroups of `wgmma_pingpong`, over a batch.
//
// Compared with `wgmma_batched`: the results of 64 of 512×512×64 are four times as many bytes as
// the operands, and a block that computes one tile stores them while its tensor cores and its
// copies wait. Here a block stays. It takes tiles of all products, one product after the other, and
// stores the results of a tile while it fetches and multiplies the next one.
//
// What limits it: a tile of few steps, whose results leave one box of 64 columns after the other.

#include "../gemm/wgmma_pingpong.cu"
#include "../lib/cluster/batch.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__(384, 1)
wgmma_batched_pingpong(const Scalar* A, const Scalar* B, Scalar* C, int BATCH, int M, int N, int K,
                       const __grid_constant__ CUtensorMap a_map,
                       const __grid_constant__ CUtensorMap b_map,
                       const __grid_constant__ CUtensorMap c_map) {
  prefetch_maps(a_map, b_map, c_map);
  const BatchTiles<ClusterTiles<BM, BN, CM, CN, GROUP>> tiles(BATCH, M, N);
  multiply_in_turns<Scalar, BM, BN, BK, STAGES>(tiles, K, MatrixOfBatch{&a_map},
                                                MatrixOfBatch{&b_map}, MatrixOfBatch{&c_map});
}
