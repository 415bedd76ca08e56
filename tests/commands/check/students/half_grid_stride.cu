// fp16 inputs, fp32 accumulate, 1D grid with a grid-stride loop
#include <cuda_fp16.h>
#include <cstdio>
#include <cstdlib>

__global__ void hgemm_1d(int M, int N, int K, const __half *A, const __half *B, __half *C) {
  for (int idx = blockIdx.x * blockDim.x + threadIdx.x; idx < M * N; idx += blockDim.x * gridDim.x) {
    int i = idx / N;
    int j = idx % N;
    float s = 0.0f;
    for (int p = 0; p < K; p++) {
      s += __half2float(A[i * K + p]) * __half2float(__ldg(&B[p * N + j]));
    }
    C[idx] = __float2half(s);
  }
}

int main() {
  int M = 512, N = 256, K = 384;
  __half *A, *B, *C;
  cudaMallocManaged(&A, M * K * sizeof(__half));
  cudaMallocManaged(&B, K * N * sizeof(__half));
  cudaMallocManaged(&C, M * N * sizeof(__half));
  for (int i = 0; i < M * K; i++) A[i] = __float2half(drand48() - 0.5);
  for (int i = 0; i < K * N; i++) B[i] = __float2half(drand48() - 0.5);
  int blockSize = 256;
  int numBlocks = (M * N + blockSize - 1) / blockSize;
  hgemm_1d<<<numBlocks, blockSize>>>(M, N, K, A, B, C);
  cudaDeviceSynchronize();
  printf("C[0][0] = %f\n", __half2float(C[0]));
  cudaFree(A); cudaFree(B); cudaFree(C);
}
