#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

// A warp for each element of C: lanes share the sum.
__global__ void warp_dot(const float* A, const float* B, float* C, int M, int N, int K) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  int element = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (element >= M * N) return;
  int row = element / N, col = element % N;
  float sum = 0;
  for (int k = warp.thread_rank(); k < K; k += 32) sum += A[row * K + k] * B[k * N + col];
  for (int offset = 16; offset > 0; offset /= 2) sum += warp.shfl_down(sum, offset);
  if (warp.thread_rank() == 0) C[element] = sum;
}

void dots(const float* A, const float* B, float* C, int M, int N, int K) {
  warp_dot<<<(M * N + 3) / 4, 128>>>(A, B, C, M, N, K);
}
