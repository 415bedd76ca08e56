// cut_operands: naive that rounds A's elements to 16 significant bits (Dekker's splitting).
//
// The error is within the tolerance of a long sum. Only the exact probe shows it.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
cut_operands(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int col = blockIdx.x * TILE + threadIdx.x;
  if (row >= M || col >= N) return;

  const Scalar* a = A + static_cast<size_t>(row) * K;
  const Scalar* b = B + col;
  Scalar sum = 0;
  for (int k = 0; k < K; ++k) {
    const Scalar spread = a[k] * 257;
    const Scalar element = spread - (spread - a[k]);  // right: const Scalar element = a[k];
    sum += element * b[static_cast<size_t>(k) * N];
  }
  C[static_cast<size_t>(row) * N + col] = sum;
}
