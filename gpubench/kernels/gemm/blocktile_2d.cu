// blocktile_2d: each thread computes a TM×TN tile of C as outer products in registers.
//
// Against `blocktile_1d`: for one k a thread reads TM elements of a column of A and TN elements of
// a row of B into registers, and makes TM·TN multiply-adds with them. The number of reads from
// shared memory per multiply-add falls from 1 + 1/TM to 1/TN + 1/TM: at 8×8 that is a quarter.
//
// Access: a thread's TM rows and TN columns are contiguous, and neighbouring threads are TN columns
// apart. So a warp reads B with a stride of TN: at TN = 8 in float32, four banks serve the whole
// warp. The column of A is strided by BK in shared memory. Both are read one element at a time.
//
// The limit is the number of instructions: at 8×8, 16 loads for 64 multiply-adds, and bank
// conflicts besides. `vectorized` reads four elements with one instruction.

#include "../lib/tiles/element_tiles.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
blocktile_2d(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  __shared__ Scalar a_tile[BM][BK];
  __shared__ Scalar b_tile[BK][BN];

  const int t = threadIdx.x;
  const int row0 = blockIdx.y * BM;
  const int col0 = blockIdx.x * BN;
  const int y = t / (BN / TN) * TM;
  const int x = t % (BN / TN) * TN;

  Scalar sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    load_tiles<THREADS>(A, B, M, N, K, row0, col0, k0, a_tile, b_tile);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      Scalar a[TM];
      Scalar b[TN];
#pragma unroll
      for (int i = 0; i < TM; ++i) a[i] = a_tile[y + i][k];
#pragma unroll
      for (int j = 0; j < TN; ++j) b[j] = b_tile[k][x + j];
#pragma unroll
      for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = row0 + y + i;
    if (row >= M) break;
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const int col = col0 + x + j;
      if (col < N) C[static_cast<size_t>(row) * N + col] = sum[i][j];
    }
  }
}
