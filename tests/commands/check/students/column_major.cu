#include <cuda_runtime.h>

// A is row by row; B is column by column, as its transpose comes from the layer before.
__global__ void matmul_bt(const float* A, const float* B, float* C, int M, int N, int K) {
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < M && col < N) {
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[col * K + k];
    C[row * N + col] = sum;
  }
}

int main() {
  const int M = 256, N = 256, K = 256;
  float *A, *B, *C;
  cudaMalloc(&A, M * K * 4); cudaMalloc(&B, N * K * 4); cudaMalloc(&C, M * N * 4);
  dim3 block(32, 8);
  dim3 grid((N + block.x - 1) / block.x, (M + block.y - 1) / block.y);
  matmul_bt<<<grid, block>>>(A, B, C, M, N, K);
  cudaDeviceSynchronize();
}
