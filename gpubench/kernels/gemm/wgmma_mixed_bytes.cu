// wgmma_mixed_bytes: the tiles of two widths and the turns of `wgmma_mixed`, in 8 bits.
//
// Against `wgmma_bytes`: tiles of 256×192 take fewer bytes from the L2 cache per operation, which
// counts twice as much here. Their sums leave no registers for waiting results, so results are
// stored at a tile's end. int8 has twice as many bytes of results as float8.
//
// What limits it: all blocks write at the same time.

#include "wgmma_mixed.cu"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__(Roles<BM>::THREADS, 1)
wgmma_mixed_bytes(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K, int wide,
                  const __grid_constant__ CUtensorMap a_map,
                  const __grid_constant__ CUtensorMap b_map,
                  const __grid_constant__ CUtensorMap c_map) {
  multiply_mixed<Scalar, BM, BN, BK, STAGES, CM, CN, GROUP>(M, N, K, wide, &a_map, &b_map, &c_map);
}
