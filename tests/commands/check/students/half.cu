#include <cuda_fp16.h>
#include <cublas_v2.h>
#include <random>

constexpr int kTile = 16;

__global__ void hgemm(const half* A, const half* B, half* C, int M, int N, int K) {
  __shared__ half a[kTile][kTile + 2];
  __shared__ half b[kTile][kTile + 2];
  const int m = blockIdx.y * kTile + threadIdx.y;
  const int n = blockIdx.x * kTile + threadIdx.x;
  float acc = 0.f;
  for (int k0 = 0; k0 < K; k0 += kTile) {
    const half zero = __float2half(0.f);
    a[threadIdx.y][threadIdx.x] = m < M && k0 + threadIdx.x < K ? A[m * K + k0 + threadIdx.x] : zero;
    b[threadIdx.y][threadIdx.x] = n < N && k0 + threadIdx.y < K ? B[(k0 + threadIdx.y) * N + n] : zero;
    __syncthreads();
    for (int k = 0; k < kTile; ++k)
      acc = fmaf(__half2float(a[threadIdx.y][k]), __half2float(b[k][threadIdx.x]), acc);
    __syncthreads();
  }
  if (m < M && n < N) C[m * N + n] = __float2half_rn(acc);
}

void launch_hgemm(const half* A, const half* B, half* C, int M, int N, int K) {
  dim3 block(kTile, kTile), grid((N + kTile - 1) / kTile, (M + kTile - 1) / kTile);
  hgemm<<<grid, block>>>(A, B, C, M, N, K);
}

int main() {
  cublasHandle_t handle;
  cublasCreate(&handle);
  std::mt19937 random(1);
}
