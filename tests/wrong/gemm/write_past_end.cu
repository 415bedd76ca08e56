// write_past_end: naive that computes one row too many.
//
// A row of threads below the matrix stores past the end of C.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
write_past_end(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int col = blockIdx.x * TILE + threadIdx.x;
  if (row > M || col >= N) return;  // right: if (row >= M || col >= N) return;

  const Scalar* a = A + static_cast<size_t>(row) * K;
  const Scalar* b = B + col;
  Scalar sum = 0;
  for (int k = 0; k < K; ++k) sum += (row < M ? a[k] : 0) * b[static_cast<size_t>(k) * N];
  C[static_cast<size_t>(row) * N + col] = sum;
}
