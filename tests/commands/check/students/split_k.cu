#include <cuda_runtime.h>

__global__ void partial(const float* A, const float* B, float* C, int M, int N, int K, int chunk) {
  int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  int begin = blockIdx.z * chunk, end = min(begin + chunk, K);
  if (col >= N) return;
  float sum = 0;
  for (int k = begin; k < end; ++k) sum += A[row * K + k] * B[k * N + col];
  atomicAdd(&C[row * N + col], sum);
}

void split(const float* A, const float* B, float* C, int M, int N, int K) {
  const int chunk = 16;
  cudaMemset(C, 0, M * N * sizeof(float));
  dim3 grid((N + 63) / 64, M, (K + chunk - 1) / chunk);
  partial<<<grid, 64>>>(A, B, C, M, N, K, chunk);
}
