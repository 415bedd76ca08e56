#define BS 8
#include <cuda_runtime.h>

__global__ void mm_double_buffer(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[2][BS][BS + 1], b[2][BS][BS + 1];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int row = blockIdx.y * BS + ty, col = blockIdx.x * BS + tx;
  const int tiles = (K + BS - 1) / BS;
  float sum = 0;
  int now = 0;
  a[0][ty][tx] = row < M && tx < K ? A[row * K + tx] : 0;
  b[0][ty][tx] = ty < K && col < N ? B[ty * N + col] : 0;
  __syncthreads();
  for (int t = 0; t < tiles; ++t) {
    const int next = (t + 1) * BS;
    if (t + 1 < tiles) {
      a[1 - now][ty][tx] = row < M && next + tx < K ? A[row * K + next + tx] : 0;
      b[1 - now][ty][tx] = next + ty < K && col < N ? B[(next + ty) * N + col] : 0;
    }
    for (int k = 0; k < BS; ++k) sum += a[now][ty][k] * b[now][k][tx];
    __syncthreads();
    now = 1 - now;
  }
  if (row < M && col < N) C[row * N + col] = sum;
}

void mm(const float* A, const float* B, float* C, int M, int N, int K) {
  mm_double_buffer<<<dim3((N + BS - 1) / BS, (M + BS - 1) / BS), dim3(BS, BS)>>>(A, B, C, M, N, K);
}
