// register_banks: sums are stored one by one, so that the compiler may choose their registers.
//
// Against `interleaved`: the loop is the same. Only the end differs, where the tile is stored.
//
// A multiply-add reads three registers, and the register file has two banks: even and odd
// registers. If two operands come from the same bank, the second waits a cycle, unless it was kept
// from the previous multiply-add. A 128-bit store takes four adjacent registers. So in
// `interleaved` every group of four sums must lie in an aligned group of four registers, which
// fixes the bank of each sum in the loop too. Many multiply-adds then collide.
//
// Here sums go to shared memory one element at a time, once per tile, and from there to C, 32
// neighbours per store. No store needs adjacent registers, so the compiler places each sum where
// the loop needs it. The loop's source is unchanged, and its machine code is better.
//
// What remains: A is copied element by element, because the copy transposes it, and these copies
// use the same unit as the loads from shared memory. `packed_a` transposes A once.

#include "../lib/tiles/interleaved_product.cuh"

// ALIGNED: N is a multiple of 4, as in `interleaved`.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, bool ALIGNED = true>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
register_banks(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  interleaved_tile<Layout::ROWS, ALIGNED, BM, BN, BK, TM, TN, STAGES>(A, B, C, M, N, K, K, origin,
                                                                      shared);
}
