// pipelined: the next tiles are copied from global memory while the current tiles are multiplied.
//
// Against `warptile`: shared memory holds STAGES tiles of A and B. `cp.async` copies from global to
// shared memory without registers, and the thread does not wait for it. A thread requests the tile
// of STAGES − 1 steps ahead, multiplies the current tile, and only then waits for the oldest
// request. Each step has one barrier: the new tile is complete, and the old tile is free.
//
//     request   | tile 2 | tile 3 | tile 4 | ...       STAGES = 3
//     in flight | 1, 2   | 2, 3   | 3, 4   | ...
//     multiply  | tile 0 | tile 1 | tile 2 | ...
//
// Access: `cp.async` takes 4, 8 or 16 bytes. A is transposed by the copy, so it is copied by
// elements: a warp takes 4 rows × 8 elements along k. These are whole 32-byte sectors of global
// memory and, with the padding, 32 different banks. B's copies have 16 bytes if rows are aligned.
//
// What remains: 8×8 elements per thread take four loads from shared memory for 64 multiply-adds,
// and each block of 128×128 fetches its own rows and columns. `large_tile` loads less.

#include "../lib/tiles/pipelined_tile.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
pipelined(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  pipelined_tile<BM, BN, BK, TM, TN, STAGES>(A, B, C, M, N, K, blockIdx.y * BM, blockIdx.x * BN,
                                             shared);
}
