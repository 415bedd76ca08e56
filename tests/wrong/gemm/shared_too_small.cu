// shared_too_small: shared_tile whose tile of B lacks a row.
//
// The last row of threads stores behind the array.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
shared_too_small(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  __shared__ Scalar a_tile[TILE][TILE];
  __shared__ Scalar b_tile[TILE - 1][TILE];  // right: __shared__ Scalar b_tile[TILE][TILE];

  const int x = threadIdx.x;
  const int y = threadIdx.y;
  const int row = blockIdx.y * TILE + y;
  const int col = blockIdx.x * TILE + x;

  Scalar sum = 0;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    a_tile[y][x] = row < M && x < K - k0 ? A[static_cast<size_t>(row) * K + k0 + x] : Scalar(0);
    b_tile[y][x] = col < N && y < K - k0 ? B[static_cast<size_t>(k0 + y) * N + col] : Scalar(0);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += a_tile[y][k] * b_tile[k][x];
    __syncthreads();
  }
  if (row < M && col < N) C[static_cast<size_t>(row) * N + col] = sum;
}
