// register_banks: the multiplying loop as the register file wants it.
//
// Against `pipelined`: nothing new is loaded or stored; four things change how the same work meets
// the hardware, and each was read off the machine code before it was measured (docs/ladder.md).
//
// 1. 16×8 elements a thread instead of 8×8: six 128-bit loads for 128 multiply-adds. 128 sums and
//    two sets of operands fit 255 registers if a multiprocessor holds one block of 256 threads.
// 2. Operands are loaded one k ahead, into a second set of registers. Unrolled over a whole step,
//    the compiler moves these loads back to where they are needed and waits for each. A loop over
//    TURN values of k that stays a loop has an end that loads do not cross.
// 3. A multiply-add reads three registers from two banks. Sums that leave as 128-bit stores must
//    lie in aligned groups of four registers, which fixes their banks, and half the multiply-adds
//    then collide. Here sums leave one by one, through shared memory, and the compiler is free.
// 4. Copies are requested a share each turn, not all behind the barrier, where they would hold up
//    the loads of all warps at once.
//
// The ragged step of K comes first, with zeros in what it lacks, so the loop has no bounds to
// check along K. Rows past M are not copied and never stored, so they may hold anything.
//
// What remains: the copies of A, element by element because they transpose, pass through the same
// unit as the loads from shared memory. `packed_panels` removes them.

#include "../banked_product.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
register_banks(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  banked_tile<true, BM, BN, BK, TM, TN, STAGES>(A, B, C, M, N, K, K, origin, shared);
}

// For N that is no multiple of 4. A kernel of its own: a second loop beside the first would take
// registers and the compiler's care from it.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
unaligned(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  banked_tile<false, BM, BN, BK, TM, TN, STAGES>(A, B, C, M, N, K, K, origin, shared);
}
