// unwritten_element: naive that does not compute the last column.
//
// The elements of this column keep the previous content of the memory.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
unwritten_element(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int col = blockIdx.x * TILE + threadIdx.x;
  if (row >= M || col >= N - 1) return;  // right: if (row >= M || col >= N) return;

  const Scalar* a = A + static_cast<size_t>(row) * K;
  const Scalar* b = B + col;
  Scalar sum = 0;
  for (int k = 0; k < K; ++k) sum += a[k] * b[static_cast<size_t>(k) * N];
  C[static_cast<size_t>(row) * N + col] = sum;
}
