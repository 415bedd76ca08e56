// gemv_warp: one warp per ROWS rows. Its lanes read neighbours and add up by shuffles.
//
// Against `gemv_thread`: a warp reads 32 neighbours of a row with one load. So every byte loaded is
// used, and there are 32 times as many threads. Against `gemv_staged`: the sum of a row stays
// within a warp, whose lanes exchange registers. There is no shared memory and no barrier.
//
// With more ROWS, an element of x in a register serves more rows, and more independent loads of A
// are in flight. A load still brings only 4 bytes per thread. `gemv_vectorized` loads 16.

template <typename Scalar, int THREADS, int ROWS>
__global__ void __launch_bounds__(THREADS)
gemv_warp(const Scalar* A, const Scalar* x, Scalar* y, int M, int N) {
  const int lane = threadIdx.x % 32;
  const size_t warp = static_cast<size_t>(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
  const size_t row0 = warp * ROWS;
  if (row0 >= M) return;  // the whole warp

  // Past the edge the last row is read again, and its surplus sums are not stored.
  const Scalar* a[ROWS];
  Scalar sum[ROWS] = {};
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    a[row] = A + (row0 + row < M ? row0 + row : M - 1) * static_cast<size_t>(N);
  }
  for (size_t j = lane; j < N; j += 32) {
    const Scalar x_j = x[j];
#pragma unroll
    for (int row = 0; row < ROWS; ++row) sum[row] += a[row][j] * x_j;
  }
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    for (int half = 16; half > 0; half /= 2) {
      sum[row] += __shfl_down_sync(0xffffffffu, sum[row], half);
    }
    if (lane == 0 && row0 + row < M) y[row0 + row] = sum[row];
  }
}
