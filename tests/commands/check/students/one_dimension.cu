#include <cstdio>
using namespace std;

__global__ void multiply(const double* A, const double* B, double* C, int M, int N, int K) {
  int idx = blockIdx.x * blockDim.x + threadIdx.x;
  if (idx >= M * N) return;
  int i = idx / N;
  int j = idx % N;
  double value = 0.0;
  for (int k = 0; k < K; k++) value += A[i * K + k] * B[k * N + j];
  C[idx] = value;
}

void multiply_on_gpu(const double* A, const double* B, double* C, int M, int N, int K) {
  int threadsPerBlock = 128;
  int blocksPerGrid = (M * N + threadsPerBlock - 1) / threadsPerBlock;
  multiply<<<blocksPerGrid, threadsPerBlock>>>(A, B, C, M, N, K);
  cudaError_t err = cudaDeviceSynchronize();
  if (err != cudaSuccess) printf("%s", cudaGetErrorString(err));
}
