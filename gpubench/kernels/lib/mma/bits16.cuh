// bits16: the types, rounding and swizzle of kernels in 16 bits. `mma_sync` introduces them.

#pragma once

struct __half;  // NVRTC does not have cuda_fp16.h and cuda_bf16.h, and the names suffice
struct __nv_bfloat16;

template <typename Scalar>
constexpr bool IS_BFLOAT16 = false;
template <>
constexpr bool IS_BFLOAT16<__nv_bfloat16> = true;

// Returns two sums, rounded, with the first sum in the lower half. The instruction is volatile, so
// that the compiler keeps it behind a wait for the sums.
template <typename Scalar>
__device__ __forceinline__ unsigned pack(float first, float second) {
  unsigned pair;
  if constexpr (IS_BFLOAT16<Scalar>) {
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else {
    asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  }
  return pair;
}

// The 128-byte swizzle. Matrix instructions read or write 16 bytes (a chunk) of each of eight rows
// at once. In rows of 128 bytes, or a multiple, these chunks would lie in the same four banks. So
// chunk c of row r lies at place c ^ (r % 8).
__host__ __device__ constexpr int swizzle(int row, int chunk) { return chunk ^ row % 8; }
