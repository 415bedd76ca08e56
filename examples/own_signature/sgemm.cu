// Three steps of a float32 matrix product, C = alpha * A * B + beta * C, in the form of many existing
// kernels: their own names and order of arguments, headers of the host, one template argument.
// sgemm.py has the facts that gpubench needs. Nothing in this file is written for gpubench.

#include <cassert>
#include <cstdio>
#include <cuda_runtime.h>

// One thread per element. Neighbouring threads compute elements below each other, so their loads of A
// are a row apart: a warp of 32 threads needs a memory transaction for each of its rows.
template <const uint BLOCK>
__global__ void sgemm_naive(int M, int N, int K, float alpha, const float *A, const float *B,
                            float beta, float *C) {
  const uint row = blockIdx.y * BLOCK + threadIdx.x % BLOCK;
  const uint col = blockIdx.x * BLOCK + threadIdx.x / BLOCK;
  if (row >= M || col >= N) return;
  float sum = 0.0f;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = alpha * sum + beta * C[row * N + col];
}

// Rows and columns are exchanged: neighbouring threads load neighbouring elements of B and store
// neighbouring elements of C, and all threads of a row load the same element of A.
template <const uint BLOCK>
__global__ void sgemm_coalesced(int M, int N, int K, float alpha, const float *A, const float *B,
                                float beta, float *C) {
  const uint row = blockIdx.y * BLOCK + threadIdx.x / BLOCK;
  const uint col = blockIdx.x * BLOCK + threadIdx.x % BLOCK;
  if (row >= M || col >= N) return;
  float sum = 0.0f;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = alpha * sum + beta * C[row * N + col];
}

// Tiles of A and B pass through shared memory, so that an element is loaded once for BLOCK uses.
template <const uint BLOCK>
__global__ void sgemm_shared(int M, int N, int K, float alpha, const float *A, const float *B,
                             float beta, float *C) {
  __shared__ float a_tile[BLOCK * BLOCK];
  __shared__ float b_tile[BLOCK * BLOCK];
  const uint y = threadIdx.x / BLOCK, x = threadIdx.x % BLOCK;
  const uint row = blockIdx.y * BLOCK + y, col = blockIdx.x * BLOCK + x;
  float sum = 0.0f;
  for (uint k = 0; k < K; k += BLOCK) {
    a_tile[y * BLOCK + x] = row < M && k + x < K ? A[row * K + k + x] : 0.0f;
    b_tile[y * BLOCK + x] = col < N && k + y < K ? B[(k + y) * N + col] : 0.0f;
    __syncthreads();
    for (uint i = 0; i < BLOCK; ++i) sum += a_tile[y * BLOCK + i] * b_tile[i * BLOCK + x];
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = alpha * sum + beta * C[row * N + col];
}
