#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cstdint>

constexpr int ROWS = 16, COLUMNS = 64, DEPTH = 64;

// A block computes 16x64 elements of C. One thread requests the copies of both tiles by cuda::ptx.
__global__ void __launch_bounds__(ROWS *COLUMNS)
    bulk_copy(int64_t M, int64_t N, int64_t K, const nv_bfloat16 *A, const nv_bfloat16 *B,
              nv_bfloat16 *C) {
  namespace ptx = cuda::ptx;
  __shared__ alignas(16) nv_bfloat16 a[ROWS][DEPTH], b[DEPTH][COLUMNS];
  __shared__ uint64_t barrier;
  const int64_t row = blockIdx.y * int64_t{ROWS}, column = blockIdx.x * int64_t{COLUMNS};
  const bool is_first = threadIdx.x == 0 && threadIdx.y == 0;
  if (is_first) {
    ptx::mbarrier_init(&barrier, 1);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  float sum = 0.0f;
  uint32_t parity = 0;
  for (int64_t start = 0; start < K; start += DEPTH, parity ^= 1) {
    if (is_first) {
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier,
                                     sizeof a + sizeof b);
      for (int i = 0; i < ROWS; ++i)
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, a[i], A + (row + i) * K + start,
                           sizeof a[i], &barrier);
      for (int i = 0; i < DEPTH; ++i)
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, b[i],
                           B + (start + i) * N + column, sizeof b[i], &barrier);
    }
    while (!ptx::mbarrier_try_wait_parity(&barrier, parity)) {
    }
    for (int k = 0; k < DEPTH; ++k)
      sum += __bfloat162float(a[threadIdx.y][k]) * __bfloat162float(b[k][threadIdx.x]);
    __syncthreads();  // every thread has read the tiles before they are overwritten
  }
  C[(row + threadIdx.y) * N + column + threadIdx.x] = __float2bfloat16(sum);
}
