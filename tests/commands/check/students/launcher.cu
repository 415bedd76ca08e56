#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#define BLOCK 16
#define CUDA_CHECK(call)                                                        \
  do {                                                                          \
    cudaError_t status = (call);                                                \
    if (status != cudaSuccess) {                                                \
      fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
      exit(EXIT_FAILURE);                                                       \
    }                                                                           \
  } while (0)

__global__ void gemm_tiled(int M, int N, int K, const float *A, const float *B, float *C) {
  __shared__ float As[BLOCK][BLOCK];
  __shared__ float Bs[BLOCK][BLOCK];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int row = blockIdx.y * BLOCK + ty;
  const int col = blockIdx.x * BLOCK + tx;
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += BLOCK) {
    As[ty][tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f;
    Bs[ty][tx] = (col < N && k0 + ty < K) ? B[(k0 + ty) * N + col] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BLOCK; ++k) acc += As[ty][k] * Bs[k][tx];
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = acc;
}

void run_gemm(int M, int N, int K, const float *A, const float *B, float *C) {
  dim3 block(BLOCK, BLOCK);
  dim3 grid((N + BLOCK - 1) / BLOCK, (M + BLOCK - 1) / BLOCK);
  gemm_tiled<<<grid, block>>>(M, N, K, A, B, C);
  CUDA_CHECK(cudaGetLastError());
  CUDA_CHECK(cudaDeviceSynchronize());
}

int main() {
  float *A, *B, *C;
  CUDA_CHECK(cudaMalloc((void **)&A, 1024 * 1024 * 4));
  CUDA_CHECK(cudaMalloc((void **)&B, 1024 * 1024 * 4));
  CUDA_CHECK(cudaMalloc((void **)&C, 1024 * 1024 * 4));
  run_gemm(1024, 1024, 1024, A, B, C);
  return 0;
}
