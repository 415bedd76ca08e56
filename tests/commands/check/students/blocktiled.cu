#include <cassert>
#include <cuda_runtime.h>
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))

template <const int BM, const int BN, const int BK, const int TM>
__global__ void sgemm1DBlocktiling(int M, int N, int K, float alpha, const float *A, const float *B,
                                   float beta, float *C) {
  __shared__ float As[BM * BK];
  __shared__ float Bs[BK * BN];
  const int threadCol = threadIdx.x % BN, threadRow = threadIdx.x / BN;
  const int innerColA = threadIdx.x % BK, innerRowA = threadIdx.x / BK;
  const int innerColB = threadIdx.x % BN, innerRowB = threadIdx.x / BN;
  const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  float threadResults[TM] = {0.0};
  for (int bkIdx = 0; bkIdx < K; bkIdx += BK) {
    const bool inA = row0 + innerRowA < M && bkIdx + innerColA < K;
    const bool inB = bkIdx + innerRowB < K && col0 + innerColB < N;
    const int at = innerRowA * BK + innerColA;
    As[at] = inA ? A[(row0 + innerRowA) * K + bkIdx + innerColA] : 0;
    Bs[innerRowB * BN + innerColB] = inB ? B[(bkIdx + innerRowB) * N + col0 + innerColB] : 0;
    __syncthreads();
    for (int dotIdx = 0; dotIdx < BK; ++dotIdx) {
      float tmpB = Bs[dotIdx * BN + threadCol];
      for (int resIdx = 0; resIdx < TM; ++resIdx) {
        threadResults[resIdx] += As[(threadRow * TM + resIdx) * BK + dotIdx] * tmpB;
      }
    }
    __syncthreads();
  }
  for (int resIdx = 0; resIdx < TM; ++resIdx) {
    const int row = row0 + threadRow * TM + resIdx, col = col0 + threadCol;
    if (row < M && col < N) C[row * N + col] = alpha * threadResults[resIdx] + beta * C[row * N + col];
  }
}

void runSgemm1DBlocktiling(int M, int N, int K, float alpha, float *A, float *B, float beta, float *C) {
  const int BM = 32, BN = 32, BK = 4, TM = 8;
  dim3 gridDim(CEIL_DIV(N, BN), CEIL_DIV(M, BM));
  dim3 blockDim((BM * BN) / TM);
  sgemm1DBlocktiling<BM, BN, BK, TM><<<gridDim, blockDim>>>(M, N, K, alpha, A, B, beta, C);
}
