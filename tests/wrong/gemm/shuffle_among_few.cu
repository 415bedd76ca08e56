// shuffle_among_few: a warp computes an element, but lanes leave when no lane needs their values.
//
// The mask of the shuffle has all lanes, so all lanes must execute it. A value from a lane that has
// left is undefined.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(32 * TILE)
shuffle_among_few(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int lane = threadIdx.x;
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int col = blockIdx.x;
  if (row >= M) return;  // a whole warp

  Scalar sum = 0;
  for (int k = lane; k < K; k += 32) {
    sum += A[static_cast<size_t>(row) * K + k] * B[static_cast<size_t>(k) * N + col];
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    if (lane >= offset) break;  // right:
    sum += __shfl_down_sync(0xffffffffu, sum, offset);
  }
  if (lane == 0) C[static_cast<size_t>(row) * N + col] = sum;
}
