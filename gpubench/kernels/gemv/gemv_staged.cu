// gemv_staged: x passes through shared memory in parts, and a block adds up each row in a tree.
//
// This is a published kernel (configs/titan-atax.toml), here for any dimensions. A block computes
// an equal share of consecutive rows. It loads VEC_BLOCKS·THREADS elements of x into shared memory.
// Then, row by row, each thread multiplies every THREADS-th element of x with its element of A
// (neighbouring threads read neighbours: coalesced), and the block adds up its threads' sums in a
// tree: half of the threads add the other half's sums, then a quarter, and so on.
//
// x is read from global memory once per block instead of once per row, which a cache does as well.
// The tree costs a barrier per level, for each row and part. Few loads are in flight between two
// trees, so the barriers limit the speed, and not the memory. `gemv_warp` has none.

// `outputs` and `terms` are rows and columns of A, or the reverse for the transposed product. The
// steps are the distances between neighbours in A.
template <typename Scalar, int THREADS, int VEC_BLOCKS>
__device__ void staged(const Scalar* A, const Scalar* x, Scalar* y, int outputs, int terms,
                       size_t output_stride, size_t term_stride) {
  constexpr int PART = THREADS * VEC_BLOCKS;
  __shared__ Scalar part[PART];
  __shared__ Scalar sums[THREADS];

  const int thread = threadIdx.x;
  const size_t share = (outputs + static_cast<size_t>(gridDim.x) - 1) / gridDim.x;
  const size_t first = share * blockIdx.x;
  const size_t last = first + share < outputs ? first + share : outputs;

  for (size_t start = 0; start < terms; start += PART) {
    for (int at = thread; at < PART; at += THREADS) {
      part[at] = start + at < terms ? x[start + at] : Scalar(0);
    }
    __syncthreads();
    for (size_t output = first; output < last; ++output) {
      const Scalar* a = A + output * output_stride + start * term_stride;
      Scalar sum = 0;
#pragma unroll
      for (int block = 0; block < VEC_BLOCKS; ++block) {
        const int at = block * THREADS + thread;
        if (start + at < terms) sum += a[at * term_stride] * part[at];
      }
      sums[thread] = sum;
      __syncthreads();
      for (int half = THREADS / 2; half > 0; half /= 2) {
        if (thread < half) sums[thread] += sums[thread + half];
        __syncthreads();
      }
      if (thread == 0) y[output] = start == 0 ? sums[0] : y[output] + sums[0];
    }
    __syncthreads();  // all have read this part
  }
}

template <typename Scalar, int THREADS, int VEC_BLOCKS>
__global__ void __launch_bounds__(THREADS)
gemv_staged(const Scalar* A, const Scalar* x, Scalar* y, int M, int N) {
  staged<Scalar, THREADS, VEC_BLOCKS>(A, x, y, M, N, N, 1);
}
