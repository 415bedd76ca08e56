// tensor_peak: the rate of bfloat16 products on tensor cores: the same operands again and again.
//
// On compute capability 9.0 two warpgroups a multiprocessor multiply tiles in shared memory by
// `wgmma`, which only it has; elsewhere warps multiply what is in their registers by `mma`. Operands
// are random in sign and mantissa: zeros would draw less power and let the clock rise.

#include "../../kernels/bits16.cuh"
#if __CUDA_ARCH__ == 900
#include "../../kernels/tensor_cores.cuh"
#endif

constexpr int THREADS = 256;

// Two numbers of magnitude 0.5 to 1.
__device__ __forceinline__ unsigned random_pair(unsigned seed) {
  seed = (seed ^ seed >> 16) * 0x85ebca6b;
  seed = (seed ^ seed >> 13) * 0xc2b2ae35;
  return (seed & 0x807f807f) | 0x3f003f00;
}

__global__ void __launch_bounds__(THREADS) tensor_peak(float* out, int steps) {
#if __CUDA_ARCH__ == 900
  constexpr int COLUMNS = 256;
  __shared__ __align__(1024) unsigned tiles[(64 + COLUMNS) * ROW_BYTES / 4];  // of A, then of B
  for (int i = threadIdx.x; i < (64 + COLUMNS) * ROW_BYTES / 4; i += THREADS) {
    tiles[i] = random_pair(i);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma reads what threads wrote
  __syncthreads();
  const unsigned a = shared_address(tiles), b = a + 64 * ROW_BYTES;
  float sum[COLUMNS / 2];
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wgmma_fence();
    multiply_step<__nv_bfloat16, COLUMNS>(sum, a, b, step > 0);
    commit_multiplications();
    await_multiplications<1>();
  }
  await_multiplications<0>();
  // No sum is read before that; the compiler would otherwise wait after each multiplication.
#pragma unroll
  for (float& part : sum) asm volatile("" : "+f"(part)::"memory");
#else
  constexpr int PRODUCTS = 8;  // independent ones, of 16×8×16
  float sum[4 * PRODUCTS] = {};
  unsigned a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = random_pair(4 * threadIdx.x + i);
  for (int i = 0; i < 2; ++i) b[i] = random_pair(2 * threadIdx.x + i);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int p = 0; p < 4 * PRODUCTS; p += 4) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
          "{%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sum[p]), "+f"(sum[p + 1]), "+f"(sum[p + 2]), "+f"(sum[p + 3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
  }
#endif
  float total = 0;
  for (float part : sum) total += part;
  // Stored so that the compiler cannot remove the work; nothing reads it.
  out[blockIdx.x * THREADS + threadIdx.x] = total;
}
