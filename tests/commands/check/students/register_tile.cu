#include <cstdio>
#include <cuda_runtime.h>
// Each thread computes a TM x TN patch of C
#define BM 64
#define BN 64
#define BK 8
#define TM 4
#define TN 4

__global__ void sgemm_regtile(const float *A, const float *B, float *C, int M, int N, int K) {
  __shared__ float As[BK][BM];
  __shared__ float Bs[BK][BN];
  float acc[TM][TN] = {{0.0f}};
  float a_frag[TM], b_frag[TN];

  const int nthreads = (BM / TM) * (BN / TN);
  const int tx = threadIdx.x % (BN / TN);
  const int ty = threadIdx.x / (BN / TN);
  const int rowBase = blockIdx.y * BM;
  const int colBase = blockIdx.x * BN;

  for (int kb = 0; kb < K; kb += BK) {
#pragma unroll
    for (int x = threadIdx.x; x < BM * BK; x += nthreads) {
      const int m = x / BK, k = x % BK;
      const int gr = rowBase + m, gk = kb + k;
      As[k][m] = gr < M && gk < K ? A[(size_t)gr * K + gk] : 0.0f;
    }
#pragma unroll
    for (int x = threadIdx.x; x < BK * BN; x += nthreads) {
      const int k = x / BN, n = x % BN;
      const int gk = kb + k, gc = colBase + n;
      Bs[k][n] = gk < K && gc < N ? B[(size_t)gk * N + gc] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      for (int i = 0; i < TM; ++i) a_frag[i] = As[k][ty * TM + i];
      for (int j = 0; j < TN; ++j) b_frag[j] = Bs[k][tx * TN + j];
      for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) acc[i][j] += a_frag[i] * b_frag[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < TM; ++i) {
    const int gr = rowBase + ty * TM + i;
    if (gr >= M) break;
    for (int j = 0; j < TN; ++j) {
      const int gc = colBase + tx * TN + j;
      if (gc < N) C[(size_t)gr * N + gc] = acc[i][j];
    }
  }
}

extern "C" void run_sgemm(const float *A, const float *B, float *C, int M, int N, int K) {
  dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
  dim3 block((BM / TM) * (BN / TN));
  sgemm_regtile<<<grid, block>>>(A, B, C, M, N, K);
}
