// naive_uncoalesced: a thread computes one element of C, and a warp's threads walk down a column.
//
// The lesson is what goes wrong. Thread x selects the *row*, so the 32 threads of a warp read 32
// different rows of A. These are 32 addresses, K elements apart, and each takes a memory
// transaction, where one could serve them all. The warp writes C like that, too.
//
// Each element of C takes 2·K operations and 2·K loads. The program reuses no load; the caches may.
// `naive` swaps the two indices and is several times faster.

template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
naive_uncoalesced(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.x * EDGE + threadIdx.x;
  const int col = blockIdx.y * EDGE + threadIdx.y;
  if (row >= M || col >= N) return;

  // Index products have 64 bits: M·K exceeds 2^31 at 46 341 × 46 341.
  const Scalar* a = A + static_cast<size_t>(row) * K;
  const Scalar* b = B + col;
  Scalar sum = 0;
  for (int k = 0; k < K; ++k) sum += a[k] * b[static_cast<size_t>(k) * N];
  C[static_cast<size_t>(row) * N + col] = sum;
}
