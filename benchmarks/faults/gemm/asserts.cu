// asserts: the naive product, which asserts a false condition at EDGE 16: a device-side assertion.

template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
asserts(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * EDGE + threadIdx.y;
  const int col = blockIdx.x * EDGE + threadIdx.x;
  assert(EDGE != 16 || row + col > 0);
  if (row >= M || col >= N) return;
  Scalar sum = 0;
  for (int k = 0; k < K; ++k) {
    sum += A[static_cast<size_t>(row) * K + k] * B[static_cast<size_t>(k) * N + col];
  }
  C[static_cast<size_t>(row) * N + col] = sum;
}
