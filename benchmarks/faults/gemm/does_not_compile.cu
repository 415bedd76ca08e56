// does_not_compile: the naive product, which does not compile at EDGE 16.

template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
does_not_compile(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * EDGE + threadIdx.y;
  const int col = blockIdx.x * EDGE + threadIdx.x;
  static_assert(EDGE != 16, "an edge of 16 is not for this kernel");
  if (row >= M || col >= N) return;
  Scalar sum = 0;
  for (int k = 0; k < K; ++k) {
    sum += A[static_cast<size_t>(row) * K + k] * B[static_cast<size_t>(k) * N + col];
  }
  C[static_cast<size_t>(row) * N + col] = sum;
}
