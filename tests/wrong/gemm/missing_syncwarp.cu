// missing_syncwarp: a warp computes an element, and adds in shared memory without __syncwarp.
//
// Since Volta, the lanes of a warp do not run in step.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(32 * TILE)
missing_syncwarp(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  __shared__ Scalar sums[TILE][32];
  const int lane = threadIdx.x;
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int col = blockIdx.x;
  if (row >= M) return;  // a whole warp

  Scalar sum = 0;
  for (int k = lane; k < K; k += 32) {
    sum += A[static_cast<size_t>(row) * K + k] * B[static_cast<size_t>(k) * N + col];
  }
  sums[threadIdx.y][lane] = sum;
  // right: __syncwarp();
  if (lane == 0) {
    for (int other = 1; other < 32; ++other) sum += sums[threadIdx.y][other];
  }
  if (lane == 0) C[static_cast<size_t>(row) * N + col] = sum;
}
