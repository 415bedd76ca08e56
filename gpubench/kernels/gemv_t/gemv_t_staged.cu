// gemv_t_staged: gemv_staged on the columns of the same A.
//
// This is the other half of the published kernel (configs/titan-atax.toml). A block computes an
// equal share of consecutive columns, and its threads take neighbouring rows. So neighbouring
// threads read N elements apart: every load of a warp touches 32 sectors and uses 4 bytes of each.
// The next columns need the same sectors, but by then, after a tree per column, the cache may have
// evicted them. `gemv_t_thread` reads the same columns side by side.

#include "../gemv/gemv_staged.cu"

template <typename Scalar, int THREADS, int VEC_BLOCKS>
__global__ void __launch_bounds__(THREADS)
gemv_t_staged(const Scalar* A, const Scalar* x, Scalar* y, int M, int N) {
  staged<Scalar, THREADS, VEC_BLOCKS>(A, x, y, N, M, 1, N);
}
