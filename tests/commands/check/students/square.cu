#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>

__global__ void matMul(const float *a, const float *b, float *c, int n) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < n && col < n) {
    float sum = 0.0f;
    for (int k = 0; k < n; k++) {
      sum += a[row * n + k] * b[k * n + col];
    }
    c[row * n + col] = sum;
  }
}

int main(int argc, char **argv) {
  int n = argc > 1 ? atoi(argv[1]) : 512;
  size_t bytes = n * n * sizeof(float);
  float *h_a = (float *)malloc(bytes), *d_a, *d_b, *d_c;
  for (int i = 0; i < n * n; i++) h_a[i] = rand() / (float)RAND_MAX;
  cudaMalloc(&d_a, bytes);
  cudaMalloc(&d_b, bytes);
  cudaMalloc(&d_c, bytes);
  cudaMemcpy(d_a, h_a, bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(d_b, h_a, bytes, cudaMemcpyHostToDevice);
  dim3 threads(16, 16);
  dim3 blocks((n + 15) / 16, (n + 15) / 16);
  matMul<<<blocks, threads>>>(d_a, d_b, d_c, n);
  cudaDeviceSynchronize();
  printf("%s\n", cudaGetErrorString(cudaGetLastError()));
  cudaFree(d_a);
  return 0;
}
