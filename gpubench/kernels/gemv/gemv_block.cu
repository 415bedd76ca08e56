// gemv_block: gemv_vectorized with a whole block on one row.
//
// Against `gemv_vectorized`: the loads are the same, but THREADS of them side by side instead of
// 32, and a row is done THREADS/32 times as fast. So the blocks in flight at any time read few
// rows, one long stretch of memory, instead of thousands of rows at once, each a little further;
// and the last rows to finish keep the GPU waiting for a shorter time. The price is one barrier a
// row, for the warps' sums. Where rows are short, most threads have nothing to do: there a warp a
// row is better.
//
// On an H200 (CUDA 13.0, float32, cold) this reads A faster than a copy moves the same bytes:
// reading alone spares memory the turns between reading and writing.

#include "gemv_vectorized.cu"

// y = A·x, a row by each block.
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
