// read_past_end: naive with one product too many.
//
// The kernel reads past the end of the last row of A, and past the end of B.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
read_past_end(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int col = blockIdx.x * TILE + threadIdx.x;
  if (row >= M || col >= N) return;

  const Scalar* a = A + static_cast<size_t>(row) * K;
  const Scalar* b = B + col;
  Scalar sum = 0;
  const int products = K + 1;  // right: const int products = K;
  for (int k = 0; k < products; ++k) sum += a[k] * b[static_cast<size_t>(k) * N];
  C[static_cast<size_t>(row) * N + col] = sum;
}
