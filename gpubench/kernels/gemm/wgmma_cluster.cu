// wgmma_cluster: two blocks share what they fetch, and tiles come in an order for the cache.
//
// Against `wgmma_persistent`: there 132 blocks fetch operands from the L2 cache. The limit is not
// time but energy: at 700 W the clock falls until the power limit is met. So each byte that
// need not move makes the tensor cores faster.
//
// A cluster is a pair of blocks on neighbouring multiprocessors. One above the other (2×1), they
// need the same columns of B: each fetches half of them, and the TMA writes that half into both
// (`cluster_gemm.cuh`). Side by side (1×2), they share rows of A. `cluster_tiles.cuh` orders tiles.
//
// Either block writes into both. So a stage is free only when the consumers of both blocks have
// reported it, and no block may end while the other block arrives at its barriers.
//
// PREFETCH, with PDL: a block that waits for the previous launch has time to bring its part of A
// and B into the L2 cache. At 1024 that gains 4 %, and at 2048 it costs 5 % (H200, CUDA 13.0).
//
// What limits it: at a tile's end the tensor cores wait until its results are in shared memory.

#include "../lib/cluster/cluster_gemm.cuh"

// Brings this block's part of a matrix into the L2 cache, one line per thread. A prefetch has no
// result, so the previous launch may still write the matrix.
__device__ __forceinline__ void prefetch_part(const void* matrix, size_t bytes) {
  constexpr int LINE = 128;
  const size_t at = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * LINE;
  if (at < bytes) {
    PTX("prefetch.global.L2 [%0];", "l"(static_cast<const char*>(matrix) + at));
  }
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP, int PDL,
          int PREFETCH>
__global__ void __launch_bounds__(Roles<BM>::THREADS, 1)
wgmma_cluster(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
              const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
              const __grid_constant__ CUtensorMap c_map) {
  using R = Roles<BM>;
  constexpr int BLOCKS = CM * CN;
  extern __shared__ __align__(1024) unsigned char stages[];  // behind them: buffers of results
  __shared__ Ring<STAGES> ring;

  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int steps = (K + BK - 1) / BK;
  if constexpr (PREFETCH) {
    prefetch_part(A, size_t{2} * M * K);
    prefetch_part(B, size_t{2} * K * N);
  }
  if constexpr (PDL) start_next_launch();
  const auto fetch = [&] {
    produce<Blocks::SERPENTINE, BM, BN, BK, BK, false>(
        ring, R::CONSUMERS * BLOCKS, stages, tiles, 0, steps, &a_map, &b_map);
  };
  const auto multiply = [&](int warpgroup) {
    const unsigned base = shared_address(stages);
    ResultBoxes boxes(&c_map, base + STAGES * (BM + BN) * ROW_BYTES, warpgroup);
    Slot<STAGES> slot;
    float sum[R::PIECES][BN / 2];
    for (int index = blockIdx.x / BLOCKS; index < tiles.count(); index += gridDim.x / BLOCKS) {
      multiply_tile<Scalar, BM, BN, BLOCKS>(sum, ring, slot, base, warpgroup, steps);
      const BlockTile tile = tiles[index];
      boxes.store_tile<Scalar>(sum, tile.row + warpgroup * R::PIECES * 64, tile.col);
    }
    boxes.finish();
  };
  divide_roles<R>(fetch, multiply);
}
