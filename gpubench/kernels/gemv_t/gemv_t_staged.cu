// gemv_t_staged: gemv_staged on the columns of the same A.
//
// The published kernel's other half (see configs/titan-atax.toml): a block computes an equal share
// of consecutive columns, and its threads take neighbouring rows. So neighbours read N elements
// apart: every load of a warp touches 32 sectors and uses 4 bytes of each. The columns beside it
// need the same sectors, but by then, one tree after the other, they may have left the cache.
// `gemv_t_thread` reads the same columns side by side.

#include "../gemv/gemv_staged.cu"

template <typename Scalar, int THREADS, int VEC_BLOCKS>
__global__ void __launch_bounds__(THREADS)
gemv_t_staged(const Scalar* A, const Scalar* x, Scalar* y, int M, int N) {
  staged<Scalar, THREADS, VEC_BLOCKS>(A, x, y, N, M, 1, N);
}
