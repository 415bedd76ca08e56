// divergent_shuffle: a warp computes an element, but its upper lanes execute another shuffle.
//
// All lanes in a mask must execute the same shuffle. The two branches have different shuffles.

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(32 * TILE)
divergent_shuffle(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int lane = threadIdx.x;
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int col = blockIdx.x;
  if (row >= M) return;  // a whole warp

  Scalar sum = 0;
  for (int k = lane; k < K; k += 32) {
    sum += A[static_cast<size_t>(row) * K + k] * B[static_cast<size_t>(k) * N + col];
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    Scalar other;
    // right: other = __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane < 16) {  // right:
      other = __shfl_xor_sync(0xffffffffu, sum, offset);  // right:
    } else {  // right:
      other = __shfl_xor_sync(0xffffffffu, sum, offset);  // right:
    }  // right:
    sum += other;
  }
  if (lane == 0) C[static_cast<size_t>(row) * N + col] = sum;
}
