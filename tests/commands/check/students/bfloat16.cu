#include <cuda_bf16.h>

__global__ void bf16_gemm(const __nv_bfloat16* __restrict__ A, const __nv_bfloat16* __restrict__ B,
                          __nv_bfloat16* __restrict__ C, int M, int N, int K) {
  int col = blockIdx.x * 32 + threadIdx.x;
  int row = blockIdx.y * 4 + threadIdx.y;
  if (row >= M || col >= N) return;
  float total = 0;
  for (int k = 0; k < K; ++k)
    total += __bfloat162float(A[row * K + k]) * __bfloat162float(B[k * N + col]);
  C[row * N + col] = __float2bfloat16(total);
}

void gemm(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K) {
  bf16_gemm<<<dim3((N + 31) / 32, (M + 3) / 4), dim3(32, 4)>>>(A, B, C, M, N, K);
}
