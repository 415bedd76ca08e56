// large_tile: 16×8 elements per thread, 128×256 per block.
//
// Against `pipelined`: the code is the same. The tiles are larger, and their order is new.
//
// For one k a thread reads TM + TN elements from shared memory for TM·TN multiply-adds. At 8×8 that
// is a vector load for 16 multiply-adds, and at 16×8 a vector load for 21. A block of 128×256
// fetches 3/4 of what 128×128 does, 1/128 + 1/256 elements for each multiply-add.
//
// The price is registers. 128 sums, 24 operands and addresses exceed the 128 registers per thread
// that allow two blocks of 256 threads. So a multiprocessor holds one block, two warps for each of
// its schedulers. Fewer warps hide less latency, so the code must separate loads from their use.
//
// The order of multiply-adds is down one column of the 16×8 and up the next. So each multiply-add
// shares an operand with the previous one, and need not read it from the register file again. Along
// the short rows, nearly every multiply-add would read two operands from the same register bank.
//
// The order of blocks: a grid of two dimensions runs row of tiles by row of tiles. Here
// neighbouring blocks go down groups of eight rows (`rasterization.cuh`).
//
// What remains: a step is unrolled as a whole, where the compiler places loads right before their
// use, and all copies of a step come right after the barrier. `interleaved` spreads both.

#include "../lib/tiles/pipelined_tile.cuh"
#include "../lib/tiles/rasterization.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
large_tile(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  pipelined_tile<BM, BN, BK, TM, TN, STAGES>(A, B, C, M, N, K, origin.row, origin.col, shared);
}
