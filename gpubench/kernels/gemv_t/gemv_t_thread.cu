// gemv_t_thread: one thread per column of A: y[j] = Σ A[i][j]·x[i].
//
// The transposed product reads the same row-major A, never a transposed copy. The threads of a warp
// are neighbours in a row, so their loads are coalesced: the wrong order for rows is the right
// order for columns. All threads read the same element of x, in one broadcast.
//
// What limits it: N threads are few, and each adds M products one after the other.
// `gemv_t_vectorized` cuts the columns into pieces.

template <typename Scalar, int THREADS>
__global__ void __launch_bounds__(THREADS)
gemv_t_thread(const Scalar* A, const Scalar* x, Scalar* y, int M, int N) {
  const size_t column = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
  if (column >= N) return;
  const Scalar* a = A + column;
  Scalar sum = 0;
  for (int i = 0; i < M; ++i) sum += a[static_cast<size_t>(i) * N] * x[i];
  y[column] = sum;
}
