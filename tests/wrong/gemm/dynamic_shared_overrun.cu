// dynamic_shared_overrun: shared_tile in dynamic shared memory, with rows that are too long.
//
// The launch requests two tiles of TILE x TILE elements. The kernel uses rows of TILE + 1 elements.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
dynamic_shared_overrun(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char space[];
  constexpr int ROW = TILE + 1;  // right: constexpr int ROW = TILE;
  Scalar* a_tile = reinterpret_cast<Scalar*>(space);
  Scalar* b_tile = a_tile + TILE * ROW;

  const int x = threadIdx.x;
  const int y = threadIdx.y;
  const int row = blockIdx.y * TILE + y;
  const int col = blockIdx.x * TILE + x;

  Scalar sum = 0;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    const bool a_inside = row < M && x < K - k0;
    const bool b_inside = col < N && y < K - k0;
    a_tile[y * ROW + x] = a_inside ? A[static_cast<size_t>(row) * K + k0 + x] : Scalar(0);
    b_tile[y * ROW + x] = b_inside ? B[static_cast<size_t>(k0 + y) * N + col] : Scalar(0);
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += a_tile[y * ROW + k] * b_tile[k * ROW + x];
    __syncthreads();
  }
  if (row < M && col < N) C[static_cast<size_t>(row) * N + col] = sum;
}
