// shared_tile: TILE×TILE threads share one TILE×TILE tile of A and one of B at a time.
//
// Against `naive`: a block walks along K in steps of TILE. In each step every thread loads one
// element of A and one of B into shared memory (coalesced). After a barrier, it makes TILE
// multiply-adds from shared memory. After another barrier, the next step begins. Each element
// fetched from global memory is now used TILE times, so the traffic is 1/TILE.
//
// The limit is TILE = 32, where a block has its maximum of 1024 threads. And each multiply-add
// still reads two operands from shared memory, which is then the bottleneck. The block tiles of the
// later kernels remove it: a thread computes several elements.
//
// Elements outside the matrices are loaded as 0, so any M, N, K works with any tile. All threads
// reach both barriers: the bounds only decide what is loaded and stored.
//
// A or B may be column-major instead. Then threads x and y change places where the tile is loaded,
// so that neighbours still read neighbouring elements. The tiles in shared memory stay the same.

template <typename Scalar, int TILE, bool A_BY_COLUMNS = false, bool B_BY_COLUMNS = false>
__global__ void __launch_bounds__(TILE * TILE)
shared_tile(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  __shared__ Scalar a_tile[TILE][TILE];
  __shared__ Scalar b_tile[TILE][TILE];

  const int x = threadIdx.x;
  const int y = threadIdx.y;
  const int row = blockIdx.y * TILE + y;
  const int col = blockIdx.x * TILE + x;

  Scalar sum = 0;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    if constexpr (A_BY_COLUMNS) {
      const int i = blockIdx.y * TILE + x;
      a_tile[x][y] = i < M && y < K - k0 ? A[static_cast<size_t>(k0 + y) * M + i] : Scalar(0);
    } else {
      a_tile[y][x] = row < M && x < K - k0 ? A[static_cast<size_t>(row) * K + k0 + x] : Scalar(0);
    }
    if constexpr (B_BY_COLUMNS) {
      const int j = blockIdx.x * TILE + y;
      b_tile[x][y] = j < N && x < K - k0 ? B[static_cast<size_t>(j) * K + k0 + x] : Scalar(0);
    } else {
      b_tile[y][x] = col < N && y < K - k0 ? B[static_cast<size_t>(k0 + y) * N + col] : Scalar(0);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += a_tile[y][k] * b_tile[k][x];
    __syncthreads();
  }
  if (row < M && col < N) C[static_cast<size_t>(row) * N + col] = sum;
}
