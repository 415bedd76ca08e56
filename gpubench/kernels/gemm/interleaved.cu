// interleaved: loads and copies are spread evenly among the multiply-adds, ahead of their use.
//
// Against `large_tile`: the same tile and the same copies, in another order. With two warps per
// scheduler, an instruction that waits for its operand usually means that nothing is issued.
//
// Operands: the operands of the next k are loaded into a second set of registers while this k is
// multiplied, 128 multiply-adds ahead of their use. In a loop that is unrolled over a whole step,
// the compiler moves these loads back to their use. A loop over CHUNK = 8 values of k that stays a
// loop has an end that loads do not cross:
//
//     for each step:                        BK values of k
//       for each chunk:                     8 values of k, a loop in the machine code too
//         request this chunk's copies       of the tiles for STAGES - 1 steps ahead
//         for each k of the chunk:          unrolled
//           load operands of k + 1          into one set of registers
//           multiply operands of k          from the other
//
// Copies: each chunk requests a part of them. If all are requested right after the barrier, they
// delay the loads from shared memory of all warps, which use the same unit.
//
// What remains: the sums are stored 128 bits at a time, as in every kernel since `vectorized`.
// `register_banks` shows how that slows the loop.

#include "../lib/tiles/interleaved_product.cuh"
#include "../lib/tiles/vector_tiles.cuh"

// ALIGNED: N is a multiple of 4. An instance for all N would need registers for a second loop.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, bool ALIGNED = true>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
interleaved(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  Scalar* const stages = reinterpret_cast<Scalar*>(shared);
  Scalar sum[TM][TN] = {};
  interleaved_product<Layout::ROWS, ALIGNED, BM, BN, BK, STAGES>(A, B, M, N, K, K, origin, stages,
                                                                 sum);
  const int t = threadIdx.x;
  const int warp = t / 32;
  const int lane = t % 32;
  const int row = origin.row + warp / (BN / (8 * TN)) * 4 * TM + lane / 8 * 4;
  const int col = origin.col + warp % (BN / (8 * TN)) * 8 * TN + lane % 8 * 4;
  store_sums<4, 8>(sum, C, row, col, M, N, ALIGNED);
}
