#include <cuda_runtime.h>
#define min_int(a, b) ((a) < (b) ? (a) : (b))

// Four columns of C for each thread; float4 where a row of B begins at a multiple of 16 bytes.
__global__ void mm4(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= M || col >= N) return;
  float4 sum = make_float4(0, 0, 0, 0);
  if (N % 4 == 0) {
    for (int k = 0; k < K; ++k) {
      float a = A[row * K + k];
      float4 b = *reinterpret_cast<const float4*>(&B[k * N + col]);
      sum.x += a * b.x; sum.y += a * b.y; sum.z += a * b.z; sum.w += a * b.w;
    }
    *reinterpret_cast<float4*>(&C[row * N + col]) = sum;
    return;
  }
  for (int j = col; j < min_int(col + 4, N); ++j) {
    float s = 0;
    for (int k = 0; k < K; ++k) s += A[row * K + k] * B[k * N + j];
    C[row * N + j] = s;
  }
}

void launch(const float* A, const float* B, float* C, int M, int N, int K) {
  dim3 block(8, 16);
  dim3 grid((N + 31) / 32, (M + 15) / 16);
  mm4<<<grid, block>>>(A, B, C, M, N, K);
}
