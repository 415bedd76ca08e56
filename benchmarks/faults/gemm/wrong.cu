// wrong: the naive product, which leaves out the last product of each sum at EDGE 16.

template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
wrong(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * EDGE + threadIdx.y;
  const int col = blockIdx.x * EDGE + threadIdx.x;
  if (row >= M || col >= N) return;
  Scalar sum = 0;
  for (int k = 0; k < K - (EDGE == 16); ++k) {
    sum += A[static_cast<size_t>(row) * K + k] * B[static_cast<size_t>(k) * N + col];
  }
  C[static_cast<size_t>(row) * N + col] = sum;
}
