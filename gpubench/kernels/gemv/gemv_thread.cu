// gemv_thread: one thread per row: y[row] = Σ A[row][j]·x[j].
//
// This is the kernel that most people write first. The threads of a warp are neighbours in a column
// of A, so one load of the warp touches 32 rows that lie N elements apart: 32 sectors of 32 bytes
// for 32 elements of 4 bytes. The other elements of a sector are read in the next seven steps, if
// the cache still holds them. And M threads are few. `gemv_warp` solves both problems.

template <typename Scalar, int THREADS>
__global__ void __launch_bounds__(THREADS)
gemv_thread(const Scalar* A, const Scalar* x, Scalar* y, int M, int N) {
  const size_t row = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (row >= M) return;
  const Scalar* a = A + row * N;
  Scalar sum = 0;
  for (int j = 0; j < N; ++j) sum += a[j] * x[j];
  y[row] = sum;
}
