// wgmma_grouped: the turns of two warpgroups of `wgmma_pingpong`, over groups of rows.
//
// Compared with `grouped_tile`: tensor cores multiply, and the TMA copies. Compared with
// `wgmma_batched_pingpong`: the products have different numbers of rows, which the host does not
// have. So each thread that needs a tile looks for it in the offsets of the groups (`groups.cuh`).
// Blocks stay, and go from group to group, so no group waits for another.
//
// Tiles are transposed, so they have any multiple of 8 rows. The last tile of a group hangs over
// its end: it multiplies rows of the next group too, by the wrong B, and does not store them. So a
// tile has about the average number of rows of a group, or a part of them.
//
// What limits it: reading the B of each group, if groups have few rows, otherwise a tile's rows
// behind the end of its group. No launch on an H200 takes less than its bytes at 4.8 TB/s, or its
// operations at 989 TFLOP/s:
//
//     128 groups of 16×1536, K = 2048     820 MB 171 µs    12.9 GFLOP 13 µs    memory decides
//     128 groups of 256×1536, K = 2048    1.0 GB 217 µs    206 GFLOP 208 µs    both
//     8 groups of 1024×28672, K = 4096    2.4 GB 503 µs    1924 GFLOP 1946 µs  operations decide

#include "../gemm/wgmma_pingpong.cu"
#include "../lib/cluster/groups.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN>
__global__ void __launch_bounds__(384, 1)
wgmma_grouped(const Scalar* A, const Scalar* B, const int* offsets, Scalar* C, int GROUPS, int M,
              int N, int K, const __grid_constant__ CUtensorMap a_map,
              const __grid_constant__ CUtensorMap b_map,
              const __grid_constant__ CUtensorMap c_map) {
  static_assert(CM == 1, "the blocks of a cluster have the same rows");
  const GroupTiles<BM, BN, CN> tiles(offsets, GROUPS, N);
  multiply_in_turns<Scalar, BM, BN, BK, STAGES>(tiles, K, &a_map, MatrixOfBatch{&b_map},
                                                RowsOfGroup<Scalar>{&c_map, C, N});
}
