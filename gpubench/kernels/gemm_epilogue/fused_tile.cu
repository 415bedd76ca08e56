// fused_tile: `shared_tile` of gemm, whose threads finish an element of C before they store it.
//
// A kernel of its own for the bias, the activation and the residual reads and writes all of C again.
// Here the sum is still in a register: the epilogue costs a load of the bias, which neighbouring
// rows share in the cache, a load of the residual, and the activation's instructions.
//
// Sums of 16-bit operands are float32, as is the epilogue. C is rounded once.
//
// What limits it: the product, as in `shared_tile`. Both operands of each multiply-add come from
// shared memory, and 16-bit operands use no tensor cores.

#include "../lib/epilogue/activation.cuh"
#include "../lib/sums/sum_type.cuh"

// Returns a thread's element of A·B. All threads of the block take part.
template <typename Scalar, int TILE>
__device__ Sum<Scalar> element(const Scalar* A, const Scalar* B, int row, int column, int M, int N,
                               int K) {
  __shared__ Sum<Scalar> a_tile[TILE][TILE];
  __shared__ Sum<Scalar> b_tile[TILE][TILE];
  const int x = threadIdx.x;
  const int y = threadIdx.y;
  Sum<Scalar> sum = 0;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    a_tile[y][x] = row < M && x < K - k0
                       ? static_cast<Sum<Scalar>>(A[static_cast<size_t>(row) * K + k0 + x])
                       : 0;
    b_tile[y][x] = column < N && y < K - k0
                       ? static_cast<Sum<Scalar>>(B[static_cast<size_t>(k0 + y) * N + column])
                       : 0;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += a_tile[y][k] * b_tile[k][x];
    __syncthreads();
  }
  return sum;
}

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
