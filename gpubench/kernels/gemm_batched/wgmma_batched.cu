// wgmma_batched: `wgmma_fitted` of gemm, with a row of the grid for each product.
//
// Compared with `batched_tile`: tensor cores multiply, and the TMA copies. A tensor map has three
// dimensions, of which the last is the number of the matrix. So a box that hangs over the edge of a
// matrix gets zeros, and never the rows of the next matrix, and a box of results ends there too.
// blockIdx.y is the number of the product, and blockIdx.x a tile of it.
//
// A product of 64×64×64 is one tile and one step, and spends most of its time on latencies. So a
// block has only the stages that K needs, and a multiprocessor holds several blocks at once: while
// one waits for its operands, another stores its results.
//
// What limits it: if all extents are small, a launch and the latencies of a block, otherwise a
// block's results, which only other blocks overlap. No launch on an H200 takes less than its bytes
// at 4.8 TB/s, or its operations at 989 TFLOP/s:
//
//     512 of 64×64×64       12.6 MB 2.6 µs    0.3 GFLOP 0.3 µs    512 tiles, four at once
//     64 of 128×128×64       4.2 MB 0.9 µs    0.1 GFLOP 0.1 µs    64 or 128 tiles
//     16 of 512×512×512     25.2 MB 5.2 µs    4.3 GFLOP 4.3 µs    128 tiles of 128×256: 3 % idle

#include "../lib/cluster/batch.cuh"
#include "../lib/cluster/fitted_tile.cuh"

constexpr int GROUP = 8;  // rows of tiles that are computed together

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN>
__global__ void __launch_bounds__((FittedTile<BM, BN>::THREADS), 1)
wgmma_batched(const Scalar* A, const Scalar* B, Scalar* C, int BATCH, int M, int N, int K,
              const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
              const __grid_constant__ CUtensorMap c_map) {
  static_assert(BN % 64 == 0, "the TMA stores all results");
  extern __shared__ __align__(1024) unsigned char stages[];
  prefetch_maps(a_map, b_map, c_map);
  const int product = blockIdx.y;  // the grid has BATCH rows
  compute_tile<Scalar, BM, BN, BK, STAGES, 1, CM, CN, GROUP, true>(
      stages, C, M, N, K, MatrixOfBatch{&a_map, product}, MatrixOfBatch{&b_map, product},
      MatrixOfBatch{},
      [&](auto& sum, unsigned ring, const auto&, int warpgroup, const auto& to) {
        store_through_ring<BM, BN>(sum, ring, MatrixOfBatch{&c_map, product}, warpgroup, to);
      });
}
