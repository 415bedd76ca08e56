// missing_barrier: shared_tile without the barrier between loading and using the tiles.
//
// A thread multiplies elements that other threads may not have loaded yet.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
missing_barrier(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  __shared__ Scalar a_tile[TILE][TILE];
  __shared__ Scalar b_tile[TILE][TILE];

  const int x = threadIdx.x;
  const int y = threadIdx.y;
  const int row = blockIdx.y * TILE + y;
  const int col = blockIdx.x * TILE + x;

  Scalar sum = 0;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    a_tile[y][x] = row < M && x < K - k0 ? A[static_cast<size_t>(row) * K + k0 + x] : Scalar(0);
    b_tile[y][x] = col < N && y < K - k0 ? B[static_cast<size_t>(k0 + y) * N + col] : Scalar(0);
    // right: __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += a_tile[y][k] * b_tile[k][x];
    __syncthreads();
  }
  if (row < M && col < N) C[static_cast<size_t>(row) * N + col] = sum;
}
