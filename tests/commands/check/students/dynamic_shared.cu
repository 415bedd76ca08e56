#include "cuda_runtime.h"
#include "device_launch_parameters.h"
#include <vector>

extern __shared__ float tile[];

__global__ void matmul_dynamic(const float* A, const float* B, float* C, int M, int N, int K, int t) {
  float* As = tile;
  float* Bs = tile + t * t;
  int row = blockIdx.y * t + threadIdx.y;
  int col = blockIdx.x * t + threadIdx.x;
  float sum = 0;
  for (int start = 0; start < K; start += t) {
    int a_col = start + threadIdx.x, b_row = start + threadIdx.y;
    As[threadIdx.y * t + threadIdx.x] = row < M && a_col < K ? A[row * K + a_col] : 0;
    Bs[threadIdx.y * t + threadIdx.x] = b_row < K && col < N ? B[b_row * N + col] : 0;
    __syncthreads();
    for (int k = 0; k < t; k++) sum += As[threadIdx.y * t + k] * Bs[k * t + threadIdx.x];
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = sum;
}

void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
  const int t = 8;
  dim3 block(t, t);
  dim3 grid((N + t - 1) / t, (M + t - 1) / t);
  size_t bytes = 2 * t * t * sizeof(float);
  matmul_dynamic<<<grid, block, bytes>>>(A, B, C, M, N, K, t);
}
