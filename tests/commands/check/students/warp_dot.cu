// One warp computes one element of C (dot product + shuffle reduction)
#include <iostream>
#include <cstdlib>
#define WARP 32
#define FULL_MASK 0xffffffffu

template <typename T>
__inline__ __device__ T warpReduceSum(T val) {
  for (int offset = WARP / 2; offset > 0; offset /= 2)
    val += __shfl_down_sync(FULL_MASK, val, offset);
  return val;
}

template <typename T, int WARPS_PER_BLOCK>
__global__ void warpMatMul(const T *A, const T *B, T *C, const size_t n) {
  const size_t warp = (size_t)blockIdx.x * WARPS_PER_BLOCK + threadIdx.x / WARP;
  const int lane = threadIdx.x % WARP;
  if (warp >= n * n) return;
  const size_t i = warp / n, j = warp % n;
  T sum = T(0);
  for (size_t k = lane; k < n; k += WARP)
    sum += A[i * n + k] * B[k * n + j];
  sum = warpReduceSum(sum);
  if (lane == 0) C[warp] = sum;
}

int main(int argc, char **argv) {
  const size_t n = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 512;
  float *A, *B, *C;
  cudaMallocManaged(&A, n * n * sizeof(float));
  cudaMallocManaged(&B, n * n * sizeof(float));
  cudaMallocManaged(&C, n * n * sizeof(float));
  for (size_t i = 0; i < n * n; ++i) {
    A[i] = rand() / (float)RAND_MAX;
    B[i] = rand() / (float)RAND_MAX;
  }
  const int warps = 8;
  const int blocks = (n * n + warps - 1) / warps;
  warpMatMul<float, warps><<<blocks, warps * WARP>>>(A, B, C, n);
  cudaError_t err = cudaDeviceSynchronize();
  std::cout << cudaGetErrorString(err) << '\n';
  return 0;
}
