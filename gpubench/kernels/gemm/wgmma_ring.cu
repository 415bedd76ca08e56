// wgmma_ring: one warpgroup fetches, the others multiply, with a ring of stages between them.
//
// Against `wgmma`: shared memory holds STAGES steps of tiles. The producer, one thread of its own
// warpgroup, requests tiles as soon as a stage is free. The consumers multiply as soon as a stage
// is filled. No barrier of the whole block is needed. Each stage has two mbarriers: on one the TMA
// counts the bytes that have arrived, and on the other the consumers report that they have read the
// stage. So up to STAGES steps are fetched while the tensor cores work.
//
//     producer       wait for free, request -> wait for free, request -> ...
//     TMA                  [ fills stage 0 ][ fills stage 1 ][ fills stage 2 ] ...
//     consumers      wait for filled ------>|multiply 0, free it|multiply 1, free it| ...
//
// Blocks are larger. A tile of 128×256 takes three quarters of the bytes per operation of 128×128,
// but has 128 sums in each thread. `setmaxnreg` moves registers: the producer keeps 24, and a
// consumer gets 240 instead of the 168 that each of 384 threads would have.
//
// What limits it: for each tile of C, the tensor cores wait for the first stage and for the stores.

#include "../lib/tiles/rasterization.cuh"
#include "../lib/mma/tensor_cores.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES>
__global__ void __launch_bounds__(Roles<BM>::THREADS, 1)
wgmma_ring(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
           const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map) {
  using R = Roles<BM>;
  constexpr int STAGE = (BM + BN) * ROW_BYTES;
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ Ring<STAGES> ring;

  const int warpgroup = warpgroup_index();
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  const int steps = (K + BK - 1) / BK;
  if (threadIdx.x == 0) ring.init(R::CONSUMERS);
  __syncthreads();

  Slot<STAGES> slot;
  if (warpgroup == R::CONSUMERS) {
    lower_registers<R::PRODUCER_REGISTERS>();
    if (threadIdx.x % 128 != 0) return;
    for (int step = 0; step < steps; ++step, slot.advance()) {
      ring.freed[slot.stage].wait(slot.parity ^ 1);
      request_step<BM, BN>(ring.filled[slot.stage], stages + slot.stage * STAGE, &a_map, &b_map,
                           origin.row, origin.col, step * BK);
    }
  } else {
    raise_registers<R::CONSUMER_REGISTERS>();
    const unsigned first_row = warpgroup * R::PIECES * 64;
    float sum[R::PIECES][BN / 2];
#pragma unroll 1
    for (int step = 0; step < steps; ++step, slot.advance()) {
      const unsigned a = shared_address(stages) + slot.stage * STAGE + first_row * ROW_BYTES;
      const unsigned b = shared_address(stages) + slot.stage * STAGE + BM * ROW_BYTES;
      ring.filled[slot.stage].wait(slot.parity);
      wgmma_fence();
#pragma unroll
      for (int p = 0; p < R::PIECES; ++p) {
        multiply_step<Scalar, BN>(sum[p], a + p * 64 * ROW_BYTES, b, step > 0);
      }
      commit_multiplications();
      await_multiplications<0>();
      free_stage(ring.freed[slot.stage]);
    }
#pragma unroll
    for (int p = 0; p < R::PIECES; ++p) {
      store_sums<Scalar, BN>(sum[p], C, origin.row + first_row + p * 64, origin.col, M, N);
    }
  }
}
