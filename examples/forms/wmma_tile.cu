#include <cuda_fp16.h>
#include <mma.h>

// A warp computes 16x16 elements of C. Extents and strides have 64 bits, and the bias may be null.
__global__ void wmma_tile(size_t m, size_t n, size_t k, const half *A, size_t lda, const half *B,
                          size_t ldb, const half *bias, half *C, size_t ldc) {
  using namespace nvcuda::wmma;
  __shared__ float tile[16 * 16];
  const size_t row = blockIdx.y * size_t{16}, column = blockIdx.x * size_t{16};
  fragment<matrix_a, 16, 16, 16, half, row_major> a;
  fragment<matrix_b, 16, 16, 16, half, row_major> b;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.0f);
  for (size_t step = 0; step < k; step += 16) {
    load_matrix_sync(a, A + row * lda + step, lda);
    load_matrix_sync(b, B + step * ldb + column, ldb);
    mma_sync(sum, a, b, sum);
  }
  store_matrix_sync(tile, sum, 16, mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x; i < 16 * 16; i += 32) {
    const float added = bias ? __half2float(bias[column + i % 16]) : 0.0f;
    C[(row + i / 16) * ldc + column + i % 16] = __float2half(tile[i] + added);
  }
}
