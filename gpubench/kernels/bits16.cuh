// bits16: what all kernels on 16-bit elements share: their types, rounding, and the swizzle.

#pragma once

struct __half;  // cuda_fp16.h and cuda_bf16.h are not among NVRTC's own headers, and names suffice
struct __nv_bfloat16;

template <typename Scalar>
constexpr bool IS_BFLOAT16 = false;
template <>
constexpr bool IS_BFLOAT16<__nv_bfloat16> = true;

// Two sums, rounded, the first one in the lower half. Volatile, so that it stays behind a wait for
// the sums.
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

// 128-byte swizzle. Matrix instructions read or write 16 bytes of each of eight rows at once. In rows
// of 128 bytes, or multiples of it, these would lie one below the other, in the same four banks. So
// each 16 bytes (a chunk) of row r lie at chunk c ^ (r % 8) instead of c.
__host__ __device__ constexpr int swizzle(int row, int chunk) { return chunk ^ row % 8; }
