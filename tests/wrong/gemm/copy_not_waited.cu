// copy_not_waited: shared_tile with asynchronous copies that nobody waits for.
//
// The barrier orders threads, but not copies: the tiles may not have arrived yet.

#include <cuda_pipeline.h>

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
copy_not_waited(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  __shared__ Scalar a_tile[TILE][TILE];
  __shared__ Scalar b_tile[TILE][TILE];

  const int x = threadIdx.x;
  const int y = threadIdx.y;
  const int row = blockIdx.y * TILE + y;
  const int col = blockIdx.x * TILE + x;

  Scalar sum = 0;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    const bool a_inside = row < M && x < K - k0;
    const bool b_inside = col < N && y < K - k0;
    const Scalar* a = a_inside ? A + static_cast<size_t>(row) * K + k0 + x : A;
    const Scalar* b = b_inside ? B + static_cast<size_t>(k0 + y) * N + col : B;
    __pipeline_memcpy_async(&a_tile[y][x], a, sizeof(Scalar), a_inside ? 0 : sizeof(Scalar));
    __pipeline_memcpy_async(&b_tile[y][x], b, sizeof(Scalar), b_inside ? 0 : sizeof(Scalar));
    __pipeline_commit();
    // right: __pipeline_wait_prior(0);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += a_tile[y][k] * b_tile[k][x];
    __syncthreads();
  }
  if (row < M && col < N) C[static_cast<size_t>(row) * N + col] = sum;
}
