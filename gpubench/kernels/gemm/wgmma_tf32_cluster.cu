// wgmma_tf32_cluster: TF32 for any shape: rows of a tile by 16, and K in parts.
//
// Compared with `wgmma_tf32`: the rows of a tile are the columns of an instruction. So a tile has
// any multiple of 16 rows from 64 to 256, beside 64 or 128 columns. The blocks of a cluster share a
// tile, each with a part of K, as in `wgmma_split_cluster`. A block computes one tile.
//
// The sums of parts leave through shared memory, where they are added up (`cluster_sums.cuh`). Rows
// that are no multiple of 16 bytes are copied first, as in `wgmma_any_rows`.
//
// What limits it: the loads of B into registers, a larger part of the work of small tiles.

#include "../lib/cluster/cluster_sums.cuh"
#include "../lib/mma/tf32.cuh"
#include "../lib/tma/padded_rows.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int SPLITS, int CM, int CN>
__global__ void __launch_bounds__(Roles<BN>::THREADS, 1)
wgmma_tf32_cluster(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
                   const __grid_constant__ CUtensorMap a_map,
                   const __grid_constant__ CUtensorMap b_map) {
  using R = Roles<BN>;
  static_assert(R::PIECES == 1, "64 columns a consumer");
  static_assert(BK == TF32_WIDTH, "a step is a row of 128 bytes");
  static_assert(BN % (CM * TF32_WIDTH) == 0, "whole boxes of B, as for the host");
  constexpr int GROUP = 8;
  constexpr int BLOCKS = CM * CN;  // that share what they fetch
  constexpr int STAGE = (BM + BN) * ROW_BYTES;
  constexpr int PITCH = BN * 4 + 16;
  extern __shared__ __align__(1024) unsigned char stages[];  // later: sums for the other parts
  __shared__ Ring<STAGES> ring;

  if (threadIdx.x == 0) {  // before the divisions that find the tile
    prefetch_map(&a_map);
    prefetch_map(&b_map);
  }
  const ClusterTiles<BM, BN, CM, CN, GROUP, SPLITS> tiles(M, N);
  const Rank<CM, CN, SPLITS>& rank = tiles.rank;
  const BlockTile tile = tiles[blockIdx.x / (BLOCKS * SPLITS)];
  const StepsOfPart steps((K + BK - 1) / BK, rank.part, SPLITS);
  start_next_launch();
  const auto fetch = [&] {
    produce<Blocks::END, BM, BN, BK, TF32_WIDTH, false>(ring, R::CONSUMERS * BLOCKS, stages, tiles,
                                                        steps.first, steps.count, &a_map, &b_map);
  };
  const auto multiply = [&](int warpgroup) {
    const unsigned a = shared_address(stages);
    const unsigned b = a + (BM + warpgroup * 64) * ROW_BYTES + tf32_offset(threadIdx.x % 128);
    Slot<STAGES> slot;
    float sum[BM / 2];
    Tf32Columns<BK / 4> even, odd;  // of the even and the odd steps
    ring.filled[0].wait(0);
    even.load(b);
    multiply_tf32_steps<BM, STAGE, BLOCKS>(sum, ring, slot, a, b, even, odd, steps.count, false,
                                           rank.first);
    if constexpr (SPLITS == 1) {
      store_columns<BM>(sum, C, tile.row, tile.col + warpgroup * 64, M, N);
    } else {
      fence_sums(sum);
      PTX("bar.sync 1, %0;", "n"(128 * R::CONSUMERS));  // all stages are read
      const int col = warpgroup * 64 + tf32_column(threadIdx.x % 128);
#pragma unroll
      for (int i = 0; i < BM / 4; ++i) {
        const int row = i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
        PTX("st.shared.v2.f32 [%0], {%1, %2};", "r"(a + row * PITCH + col * 4),
            "f"(sum[i / 2 * 4 + i % 2]), "f"(sum[i / 2 * 4 + 2 + i % 2]));
      }
      add_parts<SPLITS, BLOCKS, BM, BN, PITCH, 128 * R::CONSUMERS, Scalar>(
          a, rank.part, rank.peer(), [&](int row, int col, const Vector<Scalar>& sums) {
            if (tile.row + row < M) {
              store_vector(sums, C + static_cast<size_t>(tile.row + row) * N, tile.col + col, N,
                           N % 4 == 0);
            }
          });
    }
  };
  divide_roles<R>(fetch, multiply);
}
