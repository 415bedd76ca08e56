// Five float32 products with the habits of other people's kernels: their own names, macros, and orders
// of arguments. The tests plant access faults in them. Nothing in this file is written for gpubench.

#include <cuda_runtime.h>

#define OFFSET(row, col, ld) ((row) * (ld) + (col))
#define FETCH_FLOAT4(pointer) (reinterpret_cast<float4 *>(&(pointer))[0])

// One thread per element, in a block of one dimension.
__global__ void mysgemm_v1(int M, int N, int K, float *A, float *B, float *C) {
  int x = blockIdx.x * 32 + threadIdx.x % 32;
  int y = blockIdx.y * 8 + threadIdx.x / 32;
  if (x >= N || y >= M) return;
  float tmp = 0.f;
  for (int i = 0; i < K; i++) {
    tmp += A[OFFSET(y, i, K)] * B[OFFSET(i, x, N)];
  }
  C[OFFSET(y, x, N)] = tmp;
}

// Two columns per thread, as a float2.
__global__ void mysgemm_float2(int M, int N, int K, float *A, float *B, float *C) {
  int pair = blockIdx.x * 32 + threadIdx.x;
  int y = blockIdx.y * 4 + threadIdx.y;
  if (2 * pair >= N || y >= M) return;
  float2 acc = make_float2(0.f, 0.f);
  for (int i = 0; i < K; i++) {
    const float a = A[y * K + i];
    const float2 b = reinterpret_cast<const float2 *>(B + i * N)[pair];
    acc.x += a * b.x;
    acc.y += a * b.y;
  }
  reinterpret_cast<float2 *>(C + y * N)[pair] = acc;
}

// Tiles of 32×32 in shared memory. The tile of A lies transposed, with a column of padding.
__global__ void mysgemm_tiled(int M, int N, int K, float *A, float *B, float *C) {
  __shared__ float As[32][33];
  __shared__ float Bs[32][32];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int row = blockIdx.y * 32 + ty, col = blockIdx.x * 32 + tx;
  float acc = 0.f;
  for (int t = 0; t < K; t += 32) {
    As[tx][ty] = row < M && t + tx < K ? A[row * K + t + tx] : 0.f;
    Bs[ty][tx] = col < N && t + ty < K ? B[(t + ty) * N + col] : 0.f;
    __syncthreads();
    for (int k = 0; k < 32; k++) {
      acc += As[k][ty] * Bs[k][tx];
    }
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = acc;
}

// 8×8 elements per thread, 128×128 per block, 8 values of k per step, loads of float4. M and N are
// multiples of 128, and K of 8.
__global__ void __launch_bounds__(256)
mysgemm_v7(int M, int N, int K, float *A, float *B, float *C) {
  const int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8;
  __shared__ float As[BK][BM + 4];
  __shared__ float Bs[BK][BN];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int a_row = threadIdx.x / 2, a_col = threadIdx.x % 2 * 4;
  const int b_row = threadIdx.x / 32, b_col = threadIdx.x % 32 * 4;
  float accum[8][8] = {0.f};
  float a_frag[8], b_frag[8];
  A = &A[blockIdx.y * BM * K];
  B = &B[blockIdx.x * BN];
  C = &C[blockIdx.y * BM * N + blockIdx.x * BN];
  for (int k = 0; k < K; k += BK) {
    float4 from_a = FETCH_FLOAT4(A[OFFSET(a_row, a_col + k, K)]);
    As[a_col + 0][a_row] = from_a.x;
    As[a_col + 1][a_row] = from_a.y;
    As[a_col + 2][a_row] = from_a.z;
    As[a_col + 3][a_row] = from_a.w;
    FETCH_FLOAT4(Bs[b_row][b_col]) = FETCH_FLOAT4(B[OFFSET(b_row + k, b_col, N)]);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < BK; i++) {
      FETCH_FLOAT4(a_frag[0]) = FETCH_FLOAT4(As[i][ty * TM]);
      FETCH_FLOAT4(a_frag[4]) = FETCH_FLOAT4(As[i][ty * TM + 4]);
      FETCH_FLOAT4(b_frag[0]) = FETCH_FLOAT4(Bs[i][tx * 4]);
      FETCH_FLOAT4(b_frag[4]) = FETCH_FLOAT4(Bs[i][tx * 4 + 64]);
      for (int m = 0; m < TM; m++) {
        for (int n = 0; n < TN; n++) accum[m][n] += a_frag[m] * b_frag[n];
      }
    }
    __syncthreads();
  }
  for (int m = 0; m < TM; m++) {
    for (int half = 0; half < 2; half++) {
      FETCH_FLOAT4(C[OFFSET(ty * TM + m, tx * 4 + half * 64, N)]) = FETCH_FLOAT4(accum[m][half * 4]);
    }
  }
}
