// tensor_peak: the rate of products on tensor cores: the same operands again and again.
//
// On compute capability 9.0 two warpgroups a multiprocessor multiply tiles in shared memory by
// `wgmma`, which only it has; float64 there, and bfloat16 elsewhere, warps multiply from registers by
// `mma`. Operands are random in sign and mantissa: zeros would draw less power and let the clock
// rise. `float` stands for TF32.

#include "../../kernels/lib/mma/bits16.cuh"
#if __CUDA_ARCH__ == 900
#include "../../kernels/lib/mma/tensor_cores.cuh"
#endif

constexpr int THREADS = 256;

// Of a word of numbers of magnitude 0.5 to 1: the random bits, and those that are set.
struct Bits {
  unsigned random, set;
};
template <typename Scalar>
constexpr Bits BITS = {0x83ff83ff, 0x38003800};  // float16
template <>
constexpr Bits BITS<__nv_bfloat16> = {0x807f807f, 0x3f003f00};
template <>
constexpr Bits BITS<float> = {0x807fffff, 0x3f000000};
template <>
constexpr Bits BITS<double> = {0x800fffff, 0x3fe00000};  // the upper half
template <>
constexpr Bits BITS<signed char> = {~0u, 0};
template <>
constexpr Bits BITS<struct __nv_fp8_e4m3> = {0x87878787, 0x30303030};

__device__ __forceinline__ unsigned random_bits(unsigned seed) {
  seed = (seed ^ seed >> 16) * 0x85ebca6b;
  return (seed ^ seed >> 13) * 0xc2b2ae35;
}
template <typename Scalar>
__device__ __forceinline__ unsigned random_word(unsigned seed) {
  return (random_bits(seed) & BITS<Scalar>.random) | BITS<Scalar>.set;
}

// Stored so that the compiler cannot remove the work; nothing reads it.
template <typename Sum, int SUMS>
__device__ __forceinline__ void keep(float* out, const Sum (&sum)[SUMS]) {
  Sum total = 0;
  for (Sum part : sum) total += part;
  out[blockIdx.x * THREADS + threadIdx.x] = static_cast<float>(total);
}

// By warps: PRODUCTS independent ones of 16×8×16.
constexpr int PRODUCTS = 8;

#if __CUDA_ARCH__ != 900
__device__ __forceinline__ void multiply(float* out, int steps, const __nv_bfloat16*) {
  float sum[4 * PRODUCTS] = {};
  unsigned a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = random_word<__nv_bfloat16>(4 * threadIdx.x + i);
  for (int i = 0; i < 2; ++i) b[i] = random_word<__nv_bfloat16>(2 * threadIdx.x + i);
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
  keep(out, sum);
}
#else
__device__ __forceinline__ double random_double(unsigned seed) {
  return __hiloint2double(random_word<double>(seed), random_bits(~seed));
}

__device__ __forceinline__ void multiply(float* out, int steps, const double*) {
  double sum[4 * PRODUCTS] = {};
  double a[8], b[4];
  for (int i = 0; i < 8; ++i) a[i] = random_double(8 * threadIdx.x + i);
  for (int i = 0; i < 4; ++i) b[i] = random_double(4 * threadIdx.x + i);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int p = 0; p < 4 * PRODUCTS; p += 4) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, "
          "%8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
          : "+d"(sum[p]), "+d"(sum[p + 1]), "+d"(sum[p + 2]), "+d"(sum[p + 3])
          : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
            "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
    }
  }
  keep(out, sum);
}

constexpr int COLUMNS = 256;

template <typename Scalar>
__device__ __forceinline__ void
multiply_tiles(Sum<Scalar> (&sum)[COLUMNS / 2], unsigned a, unsigned b, bool add) {
  multiply_step<Scalar, COLUMNS>(sum, a, b, add);
}
template <>
__device__ __forceinline__ void
multiply_tiles<float>(float (&sum)[COLUMNS / 2], unsigned a_tile, unsigned b_tile, bool more) {
#pragma unroll
  for (int k = 0; k < ROW_BYTES / 32; ++k) {
    const unsigned long long a = part_of_a(a_tile, k);
    const unsigned long long b = part_of_a(b_tile, k);  // along k, too
    const bool add = more || k > 0;
    constexpr int N = COLUMNS;
    WGMMA_SHARED("k8.f32.tf32.tf32", ", 1, 1", FLOATS, 256, 128, 129, 130, )
  }
}

template <typename Scalar>
__device__ __forceinline__ void multiply(float* out, int steps, const Scalar*) {
  __shared__ __align__(1024) unsigned tiles[(64 + COLUMNS) * ROW_BYTES / 4];  // of A, then of B
  for (int i = threadIdx.x; i < (64 + COLUMNS) * ROW_BYTES / 4; i += THREADS) {
    tiles[i] = random_word<Scalar>(i);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma reads what threads wrote
  __syncthreads();
  const unsigned a = shared_address(tiles), b = a + 64 * ROW_BYTES;
  Sum<Scalar> sum[COLUMNS / 2];
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wgmma_fence();
    multiply_tiles<Scalar>(sum, a, b, step > 0);
    commit_multiplications();
    await_multiplications<1>();
  }
  await_multiplications<0>();
  // No sum is read before that; the compiler would otherwise wait after each multiplication.
  fence_sums(sum);
  keep(out, sum);
}
#endif

template <typename Scalar>
__global__ void __launch_bounds__(THREADS) tensor_peak(float* out, int steps) {
  multiply(out, steps, static_cast<const Scalar*>(nullptr));
}
