// wgmma_persistent: blocks stay for the whole product, and results leave by the TMA.
//
// Against `wgmma_ring`: there is one block per multiprocessor, and each computes tile after tile.
// While results are stored, the producer fills stages with the next tile's first steps.
//
// Results go the way of the operands, backwards. `stmatrix` writes 64×64 sums of a warpgroup,
// rounded to 16 bits, to shared memory, swizzled and without bank conflicts. One thread has the TMA
// store the box. Meanwhile the next box goes into a second buffer. Two such buffers per warpgroup
// take 32 KB, which leaves room for four stages. The TMA clips boxes at the edges of C.
//
// Multiplications of two steps are under way at a time, so a stage is freed one step late.
//
// PDL (programmatic dependent launch): the blocks of the next launch start as soon as blocks of
// this launch end. They set up their barriers, and wait for the whole launch only before they read.
// Small products gain most, since starting is a larger part of their time.
//
// What limits it: operands. Each block fetches its own, and 132 blocks request the same rows and
// columns from the L2 cache many times. The tensor cores are idle during stores.

#include "../lib/tiles/rasterization.cuh"
#include "../lib/mma/tensor_cores.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int PDL>
__global__ void __launch_bounds__(Roles<BM>::THREADS, 1)
wgmma_persistent(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
                 const __grid_constant__ CUtensorMap a_map,
                 const __grid_constant__ CUtensorMap b_map,
                 const __grid_constant__ CUtensorMap c_map) {
  using R = Roles<BM>;
  constexpr int STAGE = (BM + BN) * ROW_BYTES;
  extern __shared__ __align__(1024) unsigned char stages[];  // behind them: buffers of results
  __shared__ Ring<STAGES> ring;

  const int warpgroup = warpgroup_index();
  const int tiles = (M + BM - 1) / BM * ((N + BN - 1) / BN);
  const int steps = (K + BK - 1) / BK;
  if (threadIdx.x == 0) ring.init(R::CONSUMERS);
  __syncthreads();
  if constexpr (PDL) start_next_launch();

  Slot<STAGES> slot;
  if (warpgroup == R::CONSUMERS) {
    lower_registers<R::PRODUCER_REGISTERS>();
    if (threadIdx.x % 128 != 0) return;
    if constexpr (PDL) wait_for_previous_launch();
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const Origin origin = rasterize<BM, BN>(tile, M, N);
      for (int step = 0; step < steps; ++step, slot.advance()) {
        ring.freed[slot.stage].wait(slot.parity ^ 1);
        request_step<BM, BN>(ring.filled[slot.stage], stages + slot.stage * STAGE, &a_map, &b_map,
                             origin.row, origin.col, step * BK);
      }
    }
  } else {
    raise_registers<R::CONSUMER_REGISTERS>();
    const unsigned base = shared_address(stages);
    ResultBoxes boxes(&c_map, base + STAGES * STAGE, warpgroup);
    float sum[R::PIECES][BN / 2];
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      multiply_tile<Scalar, BM, BN, 1>(sum, ring, slot, base, warpgroup, steps);
      const Origin origin = rasterize<BM, BN>(tile, M, N);
      boxes.store_tile<Scalar>(sum, origin.row + warpgroup * R::PIECES * 64, origin.col);
    }
    boxes.finish();
  }
}
