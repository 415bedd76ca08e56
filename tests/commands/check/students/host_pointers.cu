#include <cuda_runtime.h>
#include <stdio.h>

__global__ void kernel(float *A, float *B, float *C, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < m && j < n) {
    float s = 0;
    for (int l = 0; l < k; l++) s += A[i * k + l] * B[l * n + j];
    C[i * n + j] = s;
  }
}

void matmulOnDevice(float *A, float *B, float *C, int m, int n, int k) {
  float *d_A, *d_B, *d_C;
  cudaMalloc((void **)&d_A, m * k * sizeof(float));
  cudaMalloc((void **)&d_B, k * n * sizeof(float));
  cudaMalloc((void **)&d_C, m * n * sizeof(float));
  cudaMemcpy(d_A, A, m * k * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(d_B, B, k * n * sizeof(float), cudaMemcpyHostToDevice);
  dim3 threads(8, 32);
  dim3 blocks((m + threads.x - 1) / threads.x, (n + threads.y - 1) / threads.y);
  cudaEvent_t start, stop;
  cudaEventCreate(&start); cudaEventCreate(&stop);
  cudaEventRecord(start);
  kernel<<<blocks, threads>>>(d_A, d_B, d_C, m, n, k);
  cudaEventRecord(stop); cudaEventSynchronize(stop);
  float ms; cudaEventElapsedTime(&ms, start, stop);
  printf("%f ms\n", ms);
  cudaMemcpy(C, d_C, m * n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_A); cudaFree(d_B); cudaFree(d_C);
}
