// gemv_block: gemv_vectorized with a whole block on one row.
//
// Against `gemv_vectorized`: the loads are the same, but THREADS of them are side by side instead
// of 32, and a row takes 32/THREADS of the time. So the running blocks read few rows, which are
// long contiguous stretches of memory, instead of thousands of rows at once. And the GPU waits less
// for the last rows. The price is one barrier per row, for the sums of the warps. If rows are
// short, most threads have nothing to do, and a warp per row is better.
//
// On an H200 (CUDA 13.0, float32, cold) this reads A faster than a copy moves the same number of
// bytes, because the memory need not switch between reading and writing.

#include "gemv_vectorized.cu"

// Computes y = A·x, one row per block.
template <typename Scalar, int THREADS, int UNROLL>
__device__ void rows_by_blocks(const Scalar* A, const Scalar* x, Scalar* y, int N) {
  __shared__ Scalar sums[THREADS / 32];
  const size_t row = blockIdx.x;
  const Scalar* const rows[1] = {A + row * N};
  Scalar sum[1] = {0};
  if (aligned(A, x, N)) {
    aligned_rows<Scalar, THREADS, 1, UNROLL>(rows, x, N, threadIdx.x, sum);
  } else {
    sum[0] = unaligned_row<Scalar, THREADS, UNROLL>(rows[0], x, N, threadIdx.x);
  }
  const Scalar total = block_sum<Scalar, THREADS>(sum[0], sums);
  if (threadIdx.x == 0) y[row] = total;
}

template <typename Scalar, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
gemv_block(const Scalar* A, const Scalar* x, Scalar* y, int M, int N) {
  rows_by_blocks<Scalar, THREADS, UNROLL>(A, x, y, N);
}
