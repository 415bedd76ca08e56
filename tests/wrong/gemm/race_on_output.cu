// race_on_output: naive whose surplus threads compute the last column again.
//
// These threads store the same value, so the result is right, but the stores are a race.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(TILE * TILE)
race_on_output(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int wanted = blockIdx.x * TILE + threadIdx.x;
  const int col = min(wanted, N - 1);
  if (row >= M) return;  // right: if (row >= M || wanted >= N) return;

  const Scalar* a = A + static_cast<size_t>(row) * K;
  const Scalar* b = B + col;
  Scalar sum = 0;
  for (int k = 0; k < K; ++k) sum += a[k] * b[static_cast<size_t>(k) * N];
  C[static_cast<size_t>(row) * N + col] = sum;
}
