// naive_uncoalesced: one thread computes one element of C, and the threads of a warp walk down
// a column.
//
// The lesson is what goes wrong. Thread x picks the *row*, so the 32 threads of a warp read 32
// different rows of A: 32 addresses, K elements apart, one memory transaction each where one
// for all would do. They write C the same way. Only B's element is shared by the warp.
//
// Work per element of C: 2·K operations for 2·K loads, none of them reused by the program; what
// reuse there is, the caches find. `naive` swaps the two indices and is several times faster.

template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
naive_uncoalesced(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.x * EDGE + threadIdx.x;
  const int col = blockIdx.y * EDGE + threadIdx.y;
  if (row >= M || col >= N) return;

  // Products in 64 bits: M·K passes 2^31 at 46 341 × 46 341.
  const Scalar* a = A + static_cast<size_t>(row) * K;
  const Scalar* b = B + col;
  Scalar sum = 0;
  for (int k = 0; k < K; ++k) sum += a[k] * b[static_cast<size_t>(k) * N];
  C[static_cast<size_t>(row) * N + col] = sum;
}
