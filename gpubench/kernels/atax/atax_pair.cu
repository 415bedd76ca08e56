// atax_pair: gemv_block, then gemv_t_vectorized on its result, which stays on the device.
//
// These are the best kernels of the two halves. b = A·v stays in the workspace. Then the columns of
// the same A are added up in slabs, and then the slabs' parts. Each half reads A once from memory,
// so the pair takes at least twice the time of reading A, unless much of A fits into the cache.

#include "../gemv/gemv_block.cu"
#include "../gemv_t/gemv_t_vectorized.cu"

// The address of the slabs' parts: after b, at a multiple of 16 bytes.
template <typename Scalar>
__device__ Scalar* behind(Scalar* b, int M) {
  constexpr int SIZE = Vector<Scalar>::SIZE;
  return b + (static_cast<size_t>(M) + SIZE - 1) / SIZE * SIZE;
}

template <typename Scalar, int THREADS, int ROWS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
atax_pair(const Scalar* A, const Scalar* x, Scalar* y, Scalar* workspace, int M, int N) {
  rows_by_blocks<Scalar, THREADS, UNROLL>(A, x, workspace, N);
}

template <typename Scalar, int THREADS, int ROWS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
atax_pair_t(const Scalar* A, const Scalar* x, Scalar* y, Scalar* workspace, int M, int N) {
  Scalar* parts = behind(workspace, M);
  columns_by_slabs<Scalar, THREADS, ROWS, UNROLL>(A, workspace, y, parts, M, N);
}

template <typename Scalar, int THREADS, int ROWS, int UNROLL>
__global__ void atax_pair_sum(const Scalar* A, const Scalar* x, Scalar* y, Scalar* workspace, int M,
                              int N) {
  partial_sums(behind(workspace, M), y, N, M / ROWS + (M % ROWS > 0));
}
