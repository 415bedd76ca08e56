// race_between_blocks: naive launched with two layers of blocks that do the same work.
//
// Threads of different blocks store to one element. No barrier could order these stores.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
race_between_blocks(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int col = blockIdx.x * TILE + threadIdx.x;
  if (row >= M || col >= N) return;
  // right: if (blockIdx.z > 0) return;

  const Scalar* a = A + static_cast<size_t>(row) * K;
  const Scalar* b = B + col;
  Scalar sum = 0;
  for (int k = 0; k < K; ++k) sum += a[k] * b[static_cast<size_t>(k) * N];
  C[static_cast<size_t>(row) * N + col] = sum;
}
