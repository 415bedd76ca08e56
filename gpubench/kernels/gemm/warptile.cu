// warptile: a warp's 32 threads form one compact rectangle of C.
//
// Against `vectorized`: there a thread's elements are contiguous, and a warp's threads lie in one
// or two long rows, so a warp reads few rows of A and many columns of B, with a stride. Here a warp
// is 4×8 threads and computes a tile of 4·TM × 8·TN. A thread's elements come in groups of one
// vector, and neighbouring threads take neighbouring vectors.
//
// Access: for one vector of B, the 8 threads of a row read 8 adjacent vectors (128 bytes at
// float32: every bank once). For one vector of A, the 4 rows of threads read 4 adjacent vectors,
// and each is broadcast. There are no bank conflicts. And the warp's rectangle is closer to a
// square, so it reads fewer distinct elements of shared memory for the same work.
//
// What remains is waiting: every thread loads a tile from global memory, stores it, waits at a
// barrier, computes, and waits again. `pipelined` loads the next tile while it computes.

#include "../lib/tiles/vector_tiles.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
warptile(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  constexpr int WIDTH = Vector<Scalar>::SIZE;
  constexpr int WARP_ROWS = 4;  // of threads
  constexpr int WARP_COLS = 8;
  constexpr int WARPS_X = BN / (WARP_COLS * TN);
  __shared__ Vector<Scalar> a_tile[BK][BM / WIDTH + 1];  // transposed, with a vector of padding
  __shared__ Vector<Scalar> b_tile[BK][BN / WIDTH];

  const int row0 = blockIdx.y * BM;
  const int col0 = blockIdx.x * BN;
  const int t = threadIdx.x;
  const int warp = t / 32;
  const int lane = t % 32;
  // This thread's first vector of rows and of columns. The next vectors are a warp's edge further.
  const int y = warp / WARPS_X * (WARP_ROWS * TM / WIDTH) + lane / WARP_COLS;
  const int x = warp % WARPS_X * (WARP_COLS * TN / WIDTH) + lane % WARP_COLS;
  const bool a_aligned = K % WIDTH == 0;
  const bool b_aligned = N % WIDTH == 0;

  Scalar sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    load_tiles<THREADS>(A, B, M, N, K, row0, col0, k0, a_aligned, b_aligned, a_tile, b_tile);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      add_outer_product<WARP_ROWS, WARP_COLS>(&a_tile[k][y], &b_tile[k][x], sum);
    }
    __syncthreads();
  }
  store_sums<WARP_ROWS, WARP_COLS>(sum, C, row0 + y * WIDTH, col0 + x * WIDTH, M, N, b_aligned);
}
