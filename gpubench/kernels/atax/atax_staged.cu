// atax_staged: gemv_staged, then gemv_t_staged on its result, which stays on the device.
//
// This is the published pair (configs/titan-atax.toml). b = A·v goes to the workspace, and a second
// launch computes c = Aᵀ·b from the columns of the same A. The lessons of both halves hold. A,
// which is nearly all of the traffic, is read from memory twice. `atax_fused` reads it once.

#include "../gemv/gemv_staged.cu"

template <typename Scalar, int THREADS, int VEC_BLOCKS>
__global__ void __launch_bounds__(THREADS)
atax_staged(const Scalar* A, const Scalar* x, Scalar* y, Scalar* workspace, int M, int N) {
  staged<Scalar, THREADS, VEC_BLOCKS>(A, x, workspace, M, N, N, 1);
}

template <typename Scalar, int THREADS, int VEC_BLOCKS>
__global__ void __launch_bounds__(THREADS)
atax_staged_t(const Scalar* A, const Scalar* x, Scalar* y, Scalar* workspace, int M, int N) {
  staged<Scalar, THREADS, VEC_BLOCKS>(A, workspace, y, N, M, 1, N);
}
