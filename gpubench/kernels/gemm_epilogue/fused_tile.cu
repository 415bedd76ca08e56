// fused_tile: `shared_tile` of gemm, whose threads finish an element of C before they store it.
//
// A kernel of its own for the bias, the activation and the residual reads and writes all of C
// again. Here the sum is still in a register: the epilogue costs a load of the bias, which
// neighbouring rows share in the cache, a load of the residual, and the activation's instructions.
//
// Sums of 16-bit operands are float32, as is the epilogue. C is rounded once.
//
// What limits it: the product, as in `shared_tile`. Both operands of each multiply-add come from
// shared memory, and 16-bit operands use no tensor cores.

#include "../lib/epilogue/activation.cuh"
#include "../lib/tiles/shared_product.cuh"

template <typename Scalar, int TILE, typename Act>
__global__ void __launch_bounds__(TILE * TILE)
fused_tile(const Scalar* A, const Scalar* B, const Scalar* bias, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int column = blockIdx.x * TILE + threadIdx.x;
  const Sum<Scalar> sum = element<Scalar, TILE>(A, B, row, column, M, N, K);
  if (row >= M || column >= N) return;
  const Sum<Scalar> z = sum + static_cast<Sum<Scalar>>(bias[column]);
  C[static_cast<size_t>(row) * N + column] = static_cast<Scalar>(Act()(z));
}

template <typename Scalar, int TILE, typename Act>
__global__ void __launch_bounds__(TILE * TILE)
fused_tile_residual(const Scalar* A, const Scalar* B, const Scalar* bias, const Scalar* residual,
                    Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int column = blockIdx.x * TILE + threadIdx.x;
  const Sum<Scalar> sum = element<Scalar, TILE>(A, B, row, column, M, N, K);
  if (row >= M || column >= N) return;
  const size_t place = static_cast<size_t>(row) * N + column;
  const Sum<Scalar> z = sum + static_cast<Sum<Scalar>>(bias[column]);
  C[place] = static_cast<Scalar>(Act()(z) + static_cast<Sum<Scalar>>(residual[place]));
}
