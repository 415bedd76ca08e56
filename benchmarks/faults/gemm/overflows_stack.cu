// overflows_stack: the naive product, which recurses without end at EDGE 16: a stack overflow.

template <typename Scalar>
__device__ __noinline__ Scalar descend(const Scalar* A, int depth) {
  volatile Scalar frame[64];
  frame[depth & 63] = A[0];
  return depth < (1 << 30) ? descend<Scalar>(A, depth + 1) + frame[(depth + 1) & 63] : frame[0];
}

template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
overflows_stack(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * EDGE + threadIdx.y;
  const int col = blockIdx.x * EDGE + threadIdx.x;
  if (EDGE == 16 && row == 0 && col == 0) C[0] = descend<Scalar>(A, K);
  if (row >= M || col >= N) return;
  Scalar sum = 0;
  for (int k = 0; k < K; ++k) {
    sum += A[static_cast<size_t>(row) * K + k] * B[static_cast<size_t>(k) * N + col];
  }
  C[static_cast<size_t>(row) * N + col] = sum;
}
