#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdexcept>
#include <string>

typedef __nv_bfloat16 bf16;

namespace {
constexpr int cdiv(int a, int b) { return (a + b - 1) / b; }

template <int BM, int BN, int BK>
__global__ void __launch_bounds__(BM *BN)
    bgemm(const bf16 *__restrict__ A, const bf16 *__restrict__ B, bf16 *__restrict__ C, int M, int N, int K) {
  __shared__ bf16 as[BM][BK];
  __shared__ bf16 bs[BK][BN];
  const int tid = threadIdx.x;
  const int ty = tid / BN;
  const int tx = tid % BN;
  const int row0 = blockIdx.y * BM;
  const int col0 = blockIdx.x * BN;

  // move the pointers to this block's tile
  A += row0 * K;
  B += col0;

  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = tid; i < BM * BK; i += BM * BN) {
      int r = i / BK, c = i % BK;
      as[r][c] = (row0 + r < M && k0 + c < K) ? A[r * K + k0 + c] : __float2bfloat16(0.0f);
    }
    for (int i = tid; i < BK * BN; i += BM * BN) {
      int r = i / BN, c = i % BN;
      bs[r][c] = (k0 + r < K && col0 + c < N) ? B[(k0 + r) * N + c] : __float2bfloat16(0.0f);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k)
      acc += __bfloat162float(as[ty][k]) * __bfloat162float(bs[k][tx]);
    __syncthreads();
  }
  if (row0 + ty < M && col0 + tx < N)
    C[(row0 + ty) * N + col0 + tx] = __float2bfloat16(acc);
}
}  // namespace

void launch_bgemm(const bf16 *A, const bf16 *B, bf16 *C, int M, int N, int K, cudaStream_t stream) {
  constexpr int BM = 16, BN = 16, BK = 32;
  bgemm<BM, BN, BK><<<dim3(cdiv(N, BN), cdiv(M, BM)), BM * BN, 0, stream>>>(A, B, C, M, N, K);
  if (auto e = cudaGetLastError(); e != cudaSuccess)
    throw std::runtime_error(std::string("bgemm: ") + cudaGetErrorString(e));
}
