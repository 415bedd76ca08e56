// scaled_tile: `shared_tile` of gemm, whose threads multiply elements by their scales.
//
// A thread loads an element of A, and one of B, from global memory for the tile in shared memory.
// It multiplies each by its scale on the way, once for TILE uses. The scales of a tile are few, and
// come from the cache. So the sum over k is a single sum, as in a product without scales.
//
// Elements of 8 or 16 bits are widened on the way. Sums are float32, and C is rounded once.
//
// What limits it: the product, as in `shared_tile`. Both operands of each multiply-add come from
// shared memory, and small elements use no tensor cores.

#include <cuda_fp8.h>

#include "../lib/sums/sum_type.cuh"

// Index of the scale of an element of A or of B. `Blocks`: a scale for 128 values of k (of B: and
// for 128 columns). `Rows`: a scale for a row of A, or for a column of B.
struct Blocks {
  static __device__ size_t of_a(int row, int k, int M) {
    return static_cast<size_t>(k / 128) * M + row;
  }
  static __device__ size_t of_b(int column, int k, int K) {
    return static_cast<size_t>(column / 128) * ((K + 127) / 128) + k / 128;
  }
};
struct Rows {
  static __device__ size_t of_a(int row, int, int) { return row; }
  static __device__ size_t of_b(int column, int, int) { return column; }
};

// The type of results, by the type of elements.
template <typename Scalar>
struct ResultOf {
  using Type = Scalar;
};
template <>
struct ResultOf<__nv_fp8_e4m3> {
  using Type = __nv_bfloat16;
};

template <typename Scalar, int TILE, typename Scales>
__global__ void __launch_bounds__(TILE * TILE)
scaled_tile(const Scalar* A, const Scalar* B, const float* a_scales, const float* b_scales,
            Scalar* C, int M, int N, int K) {
  using Result = typename ResultOf<Scalar>::Type;
  constexpr bool B_ALONG_K = sizeof(Scalar) == 1;  // operands of 8 bits lie along k
  __shared__ Sum<Scalar> a_tile[TILE][TILE];
  __shared__ Sum<Scalar> b_tile[TILE][TILE];

  const int x = threadIdx.x;
  const int y = threadIdx.y;
  const int row = blockIdx.y * TILE + y;
  const int first_column = blockIdx.x * TILE;
  const int column = first_column + x;

  // This thread's element of B's tile: neighbouring threads load what lies side by side.
  const int b_k = B_ALONG_K ? x : y;
  const int b_x = B_ALONG_K ? y : x;
  const int b_column = first_column + b_x;

  Sum<Scalar> sum = 0;
  for (int k0 = 0; k0 < K; k0 += TILE) {
    Sum<Scalar> a = 0, b = 0;
    if (row < M && x < K - k0) {
      const int k = k0 + x;
      a = static_cast<Sum<Scalar>>(A[static_cast<size_t>(row) * K + k]);
      a *= a_scales[Scales::of_a(row, k, M)];
    }
    if (b_column < N && b_k < K - k0) {
      const int k = k0 + b_k;
      b = static_cast<Sum<Scalar>>(B[B_ALONG_K ? static_cast<size_t>(b_column) * K + k
                                               : static_cast<size_t>(k) * N + b_column]);
      b *= b_scales[Scales::of_b(b_column, k, K)];
    }
    a_tile[y][x] = a;
    b_tile[b_k][b_x] = b;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += a_tile[y][k] * b_tile[k][x];
    __syncthreads();
  }
  if (row < M && column < N) {
    reinterpret_cast<Result*>(C)[static_cast<size_t>(row) * N + column] = static_cast<Result>(sum);
  }
}
