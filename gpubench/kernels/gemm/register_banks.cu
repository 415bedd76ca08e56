// register_banks: sums leave one by one, so that the compiler may choose their registers.
//
// Against `interleaved`: the same loop; only the end differs, where the tile is stored.
//
// A multiply-add reads three registers, and the register file has two banks: even registers and odd
// ones. Where two operands must come from one bank, the second waits a cycle, unless the operand was
// kept from the multiply-add before. A 128-bit store takes four adjacent registers, so in
// `interleaved` every group of four sums must lie in an aligned group of four registers, which fixes
// the bank of each, in the loop too. Many multiply-adds then collide, whatever registers a and b
// get.
//
// Here sums go to shared memory one element at a time, once per tile, and to C from there, 32
// neighbours a store. No store asks for adjacent registers, so the compiler places each sum where
// the loop wants it. The loop's source did not change, and its machine code did.
//
// What remains: the copies of A, element by element because they transpose, pass through the same
// unit as the loads from shared memory. `packed_a` makes them once and for all.

#include "../interleaved_product.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
register_banks(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  interleaved_tile<Layout::ROWS, true, BM, BN, BK, TM, TN, STAGES>(A, B, C, M, N, K, K, origin, shared);
}

// For N that is not a multiple of 4.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
unaligned(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  interleaved_tile<Layout::ROWS, false, BM, BN, BK, TM, TN, STAGES>(A, B, C, M, N, K, K, origin, shared);
}
