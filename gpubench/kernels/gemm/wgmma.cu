// wgmma: tensor cores in Hopper's way: a warpgroup multiplies tiles that lie in shared memory.
//
// Against `mma_sync`: there a warp loads both operands from shared memory into registers, which
// takes as long as the multiplication. `wgmma` reads its operands in shared memory itself. A
// warpgroup, four warps, multiplies 64 rows by 128 or 256 columns with one instruction, which runs
// while the threads go on. Registers hold only sums. The TMA fetches the tiles: one thread requests
// whole boxes, with the 128-byte swizzle that keeps rows in different banks (`tensor_cores.cuh`
// describes the layout of tiles, and which thread has which sums).
//
// A block computes one tile of C with BM/64 warpgroups of 64 rows each. All of them wait for the
// tiles of a step, multiply, and wait for one another before the next tiles overwrite these.
//
// What limits it: while a block fetches tiles, only other blocks on the multiprocessor multiply.

#include "../lib/tiles/rasterization.cuh"
#include "../lib/mma/tensor_cores.cuh"

template <typename Scalar, int BM, int BN, int BK>
__global__ void __launch_bounds__(2 * BM)
wgmma(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
      const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map) {
  extern __shared__ __align__(1024) unsigned char tiles[];  // of A, then of B
  __shared__ Mbarrier filled;

  const int warpgroup = warpgroup_index();
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  const unsigned a = shared_address(tiles) + warpgroup * 64 * ROW_BYTES;
  const unsigned b = shared_address(tiles) + BM * ROW_BYTES;
  if (threadIdx.x == 0) {
    filled.init(1);
    fence_mbarrier_init();
  }
  __syncthreads();

  float sum[BN / 2];
  const int steps = (K + BK - 1) / BK;
  for (int step = 0; step < steps; ++step) {
    if (threadIdx.x == 0) {
      request_step<BM, BN>(filled, tiles, &a_map, &b_map, origin.row, origin.col, step * BK);
    }
    filled.wait(step % 2);
    wgmma_fence();
    multiply_step<Scalar, BN>(sum, a, b, step > 0);
    commit_multiplications();
    await_multiplications<0>();
    __syncthreads();  // all threads have read the tiles
  }
  store_sums<Scalar, BN>(sum, C, origin.row + warpgroup * 64, origin.col, M, N);
}
