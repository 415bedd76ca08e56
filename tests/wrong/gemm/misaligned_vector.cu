// misaligned_vector: naive with 128-bit loads of A's rows, whatever K is.
//
// If K is not a multiple of 4, most rows start at an address that is not a multiple of 16 bytes. A GPU
// reports an error.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
misaligned_vector(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int col = blockIdx.x * TILE + threadIdx.x;
  if (row >= M || col >= N) return;

  const Scalar* a = A + static_cast<size_t>(row) * K;
  const Scalar* b = B + col;
  Scalar sum = 0;
  int k = 0;
  for (; k + 3 < K; k += 4) {
    // right: const float4 four = {a[k], a[k + 1], a[k + 2], a[k + 3]};
    const float4 four = *reinterpret_cast<const float4*>(a + k);  // right:
    sum += four.x * b[static_cast<size_t>(k) * N] + four.y * b[static_cast<size_t>(k + 1) * N];
    sum += four.z * b[static_cast<size_t>(k + 2) * N] + four.w * b[static_cast<size_t>(k + 3) * N];
  }
  for (; k < K; ++k) sum += a[k] * b[static_cast<size_t>(k) * N];
  C[static_cast<size_t>(row) * N + col] = sum;
}
