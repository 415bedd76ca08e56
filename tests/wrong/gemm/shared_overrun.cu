// shared_overrun: shared_tile with tiles of one dimension. The tile of A lacks a row.
//
// The compiler sees pointers without bounds. A store lands behind the array.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
shared_overrun(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  __shared__ Scalar a_space[TILE * TILE - TILE];  // right: __shared__ Scalar a_space[TILE * TILE];
  __shared__ Scalar b_space[TILE * TILE];
  Scalar* a_tile = a_space;
  Scalar* b_tile = b_space;

  const int x = threadIdx.x;
  const int y = threadIdx.y;
  const int row = blockIdx.y * TILE + y;
  const int col = blockIdx.x * TILE + x;

  Scalar sum = 0;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    const bool a_inside = row < M && x < K - k0;
    const bool b_inside = col < N && y < K - k0;
    a_tile[y * TILE + x] = a_inside ? A[static_cast<size_t>(row) * K + k0 + x] : Scalar(0);
    b_tile[y * TILE + x] = b_inside ? B[static_cast<size_t>(k0 + y) * N + col] : Scalar(0);
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += a_tile[y * TILE + k] * b_tile[k * TILE + x];
    __syncthreads();
  }
  if (row < M && col < N) C[static_cast<size_t>(row) * N + col] = sum;
}
