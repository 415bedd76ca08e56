// wgmma_bytes_pingpong: the turns of two warpgroups of `wgmma_pingpong`, in 8 bits.
//
// Compared with `wgmma_bytes_cluster`: 1328×1184 with K = 2000 are 16 steps of 128 values of k. A
// block of one tile fetches its first step and stores its results while the tensor cores wait,
// which takes as long as the steps. Here a block has several smaller tiles. The tensor cores wait
// only for the first step of its first tile, and for the results of its last tile.
//
// B lies along k, so its columns lie one below the other in shared memory, and a block of a cluster
// sends its part of them as one box. Results of float8 are bfloat16 as in `wgmma_pingpong`. Ints of
// half of a tile's rows fill a box.
//
// What limits it: a step takes as many bytes as in 16 bits, and multiplies twice as many values.

#include "wgmma_pingpong.cu"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__(384, 1)
wgmma_bytes_pingpong(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
                     const __grid_constant__ CUtensorMap a_map,
                     const __grid_constant__ CUtensorMap b_map,
                     const __grid_constant__ CUtensorMap c_map) {
  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  multiply_in_turns<Scalar, BM, BN, BK, STAGES>(tiles, K, &a_map, &b_map, &c_map);
}
