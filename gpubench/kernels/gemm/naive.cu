// naive: one thread computes one element of C, and the threads of a warp walk along a row.
//
// One change against `naive_uncoalesced`: thread x selects the *column*. The 32 threads of a warp
// now read 32 neighbouring elements of B in one transaction, share one element of A (a broadcast),
// and write C in one transaction. All else is equal, so the gain is that of coalescing alone.
//
// There are still 2·K loads for 2·K operations. Each element of A is fetched N times and each
// element of B M times, from L1 or L2 if they hold it. The block's edge decides how many threads of
// a warp share a row: at 32 a warp is one row, and below 32 it covers several rows.
//
// A or B may be column-major instead. Then a warp's loads of B are K elements apart, as in
// `naive_uncoalesced`. Loads of A stay a broadcast.

template <typename Scalar, int EDGE, bool A_BY_COLUMNS = false, bool B_BY_COLUMNS = false>
__global__ void __launch_bounds__(EDGE * EDGE)
naive(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * EDGE + threadIdx.y;
  const int col = blockIdx.x * EDGE + threadIdx.x;
  if (row >= M || col >= N) return;

  const Scalar* a = A + static_cast<size_t>(row) * (A_BY_COLUMNS ? 1 : K);
  const Scalar* b = B + static_cast<size_t>(col) * (B_BY_COLUMNS ? K : 1);
  Scalar sum = 0;
  for (int k = 0; k < K; ++k) {
    sum += a[static_cast<size_t>(k) * (A_BY_COLUMNS ? M : 1)] *
           b[static_cast<size_t>(k) * (B_BY_COLUMNS ? 1 : N)];
  }
  C[static_cast<size_t>(row) * N + col] = sum;
}
