// wgmma_bytes: operands of 8 bits, int8 or float8, with B along k.
//
// Against `wgmma_deferred`: a row of 128 bytes holds 128 values, and an instruction multiplies the
// same number of bytes of k in the same time, so twice the operations. But with 8 bits the
// instruction takes B along k only, like A. So B is N×K, and its columns are fetched by boxes like
// A's rows. Results of float8 are bfloat16. Sums have 14 bits in the tensor core, and more in
// `wgmma_split`.
//
// Results of int8 have 32 bits. The product takes half the time, so writing C is a larger part of
// it. If all blocks wrote at once, they would then all read at once. So here too a tile's results
// are stored during the next tile. They wait in as many registers as there are sums, which leaves
// room for 192 columns. The last columns are narrower tiles, so that all blocks end together:
// 4096×4096 is four tiles of 192 columns and two of 128 for each of 128 blocks (`MixedTiles`).
//
// What limits it: operands from the L2 cache, twice as many bytes per clock as with 16 bits.

#include "wgmma_deferred.cu"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__(Roles<BM>::THREADS, 1)
wgmma_bytes(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K, int wide,
            const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
            const __grid_constant__ CUtensorMap c_map) {
  const MixedTiles<BM, BN, CM, CN, GROUP> tiles(M, N, wide);
  multiply_deferred<Scalar, BM, BN, BK, STAGES, CM, CN>(tiles, K, &a_map, &b_map, &c_map);
}
