// splitk_cluster: small tiles in one launch, and K in parts by the blocks of a cluster.
//
// Compared with `splitk`: the parts of a tile are blocks of one cluster, whose sums meet in each
// other's shared memory (`cluster_sums.cuh`). So there is no workspace and no second launch.
// Nothing is packed: A is transposed while it is copied, as in `interleaved`. 396×444×668 are 49
// tiles of 64×64 for 132 multiprocessors. With K in four parts there are 196 blocks.
//
// The next launch begins while the last blocks of this launch run (programmatic dependent launch),
// since a launch is a large part of the few microseconds that such a product takes.
//
// Sums go to shared memory one element at a time, as in `register_banks`. The elements of a vector
// change places by the thread's row in its warp, so that 32 threads write to 32 different banks:
//
//     row of threads   0        1        2        3
//     place of 0 1 2 3 0 1 2 3  1 0 3 2  2 3 0 1  3 2 1 0
//
// What limits it: each thread copies its elements of A itself, and also those of B where rows are
// no multiple of 16 bytes. Small tiles have fewer multiply-adds for each element that they load.

#include "../lib/cluster/cluster_sums.cuh"
#include "../lib/tiles/interleaved_product.cuh"
#include "../lib/tma/tma.cuh"

// The place of column `column` in a row of sums that the threads in row y of a warp write.
__host__ __device__ constexpr int sum_column(int column, int y) { return column ^ y; }

// ALIGNED: N is a multiple of 4, as in `interleaved`.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, int SPLITS,
          bool ALIGNED = true>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
splitk_cluster(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  constexpr int THREADS = (BM / TM) * (BN / TN);
  constexpr int WARPS_X = BN / (8 * TN);
  Scalar* const stages = reinterpret_cast<Scalar*>(shared);
  const Origin origin = rasterize<BM, BN>(blockIdx.x / SPLITS, M, N);
  const int part = blockIdx.x % SPLITS;
  const StepsOfPart steps((K + BK - 1) / BK, part, SPLITS);
  const int from = min(steps.first * BK, K);
  const int depth = min(steps.count * BK, K - from);  // 0: an empty part
  start_next_launch();
  wait_for_previous_launch();

  Scalar sum[TM][TN] = {};
  interleaved_product<Layout::ROWS, ALIGNED, BM, BN, BK, STAGES>(
      A + from, B + static_cast<size_t>(from) * N, M, N, K, depth, origin, stages, sum);
  __syncthreads();  // the stages become room for sums
  const int warp = threadIdx.x / 32;
  const int row0 = warp / WARPS_X * 4 * TM;
  const int col0 = warp % WARPS_X * 8 * TN;
  if constexpr (SPLITS == 1) {
    store_tile(sum, stages + warp * (16 * 8 * TN + 4), C, origin.row + row0, origin.col + col0, M,
               N);
  } else {
    const int y = threadIdx.x % 32 / 8;
    const int x = threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        const int row = row0 + i / 4 * 16 + 4 * y + i % 4;
        const int col = col0 + j / 4 * 32 + 4 * x + sum_column(j % 4, y);
        stages[row * BN + col] = sum[i][j];
      }
    }
    add_parts<SPLITS, 1, BM, BN, BN * 4, THREADS, Scalar>(
        shared_address(shared), part, 0, [&](int row, int col, const Vector<Scalar>& sums) {
          if (origin.row + row >= M) return;
          const int y_of_row = row / 4 % 4;
          Vector<Scalar> ordered;
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const Scalar even = y_of_row & 1 ? sums.lanes[e ^ 1] : sums.lanes[e];
            const Scalar odd = y_of_row & 1 ? sums.lanes[e ^ 3] : sums.lanes[e ^ 2];
            ordered.lanes[e] = y_of_row & 2 ? odd : even;
          }
          store_vector(ordered, C + static_cast<size_t>(origin.row + row) * N, origin.col + col, N,
                       ALIGNED);
        });
  }
}
