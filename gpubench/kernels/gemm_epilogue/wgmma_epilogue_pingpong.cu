// wgmma_epilogue_pingpong: the turns of two warpgroups of `wgmma_pingpong`, which finish sums.
//
// Compared with `wgmma_epilogue`: a warpgroup computes the activation and stores its tile while the
// other one multiplies the next tile. A residual comes through the ring before the last step of its
// tile, so it is there when the warpgroup's turn ends, and no barrier is tested two rounds late.
//
// What limits it: the end of a block's last tile. If K is below 256, a tile's activation takes
// longer than its multiplications.

#include "../lib/epilogue/finish.cuh"
#include "../gemm/wgmma_pingpong.cu"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP,
          typename Act>
__global__ void __launch_bounds__(384, 1)
wgmma_epilogue_pingpong(const Scalar* A, const Scalar* B, const Scalar* bias, Scalar* C, int M,
                        int N, int K, const __grid_constant__ CUtensorMap a_map,
                        const __grid_constant__ CUtensorMap b_map,
                        const __grid_constant__ CUtensorMap c_map) {
  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  multiply_in_turns<Scalar, BM, BN, BK, STAGES>(tiles, K, &a_map, &b_map, &c_map,
                                                Finish<Scalar, Act, false, BN / 64>(bias, nullptr, N));
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP,
          typename Act>
__global__ void __launch_bounds__(384, 1)
wgmma_epilogue_pingpong_residual(const Scalar* A, const Scalar* B, const Scalar* bias,
                                 const Scalar* residual, Scalar* C, int M, int N, int K,
                                 const __grid_constant__ CUtensorMap a_map,
                                 const __grid_constant__ CUtensorMap b_map,
                                 const __grid_constant__ CUtensorMap c_map,
                                 const __grid_constant__ CUtensorMap residual_map) {
  const TilesWithResidual<ClusterTiles<BM, BN, CM, CN, GROUP>, BM, BN> tiles(M, N, &residual_map);
  multiply_in_turns<Scalar, BM, BN, BK, STAGES>(tiles, K, &a_map, &b_map, &c_map,
                                                Finish<Scalar, Act, true, BN / 64>(bias, residual, N));
}
