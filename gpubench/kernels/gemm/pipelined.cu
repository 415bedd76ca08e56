// pipelined: the next tiles are on their way from global memory while this one is computed.
//
// Against `warptile`: shared memory holds STAGES tiles of A and B. `cp.async` copies from global to
// shared memory without passing through registers and without anybody waiting for it: a thread
// requests the tile for STAGES − 1 steps ahead, computes the present one, and only then waits until
// the oldest request has arrived. One barrier a step instead of two: it says both that the new tile
// is there for all and that the old one is free.
//
// Access: `cp.async` takes 4, 8 or 16 bytes. A is transposed on the way, so it goes by elements: a
// warp takes 4 rows × 8 elements along k, whole 32-byte sectors of global memory and, with the
// padding, 32 different banks. B goes by 16 bytes where its rows are aligned.
//
// What remains: 8×8 elements a thread take four loads from shared memory for 64 multiply-adds, and
// each block of 128×128 fetches its own rows and columns. `large_tile` does more with each.

#include "../pipelined_tile.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
pipelined(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  pipelined_tile<BM, BN, BK, TM, TN, STAGES>(A, B, C, M, N, K, blockIdx.y * BM, blockIdx.x * BN,
                                             shared);
}
