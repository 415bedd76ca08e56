// float8: storage with conversions, which saturate as CUDA's conversions do.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace on_cpu {

template <typename F>
struct Float8 {
  unsigned char __x;
  Float8() = default;
  template <typename T, typename = std::enable_if_t<std::is_convertible_v<T, float>>>
  explicit Float8(T value) : __x(F::encode(static_cast<float>(value), Overflow::LARGEST)) {}
  explicit operator float() const { return F::decode(__x); }
  explicit operator __half() const { return F::decode(__x); }
  explicit operator __nv_bfloat16() const { return F::decode(__x); }
  explicit operator double() const { return F::decode(__x); }
};

template <typename T>
struct __attribute__((aligned(4))) Float8x4 {
  T x, y, z, w;
  Float8x4() = default;
  explicit Float8x4(float4 a) : x(a.x), y(a.y), z(a.z), w(a.w) {}
  explicit operator float4() const {
    return {static_cast<float>(x), static_cast<float>(y), static_cast<float>(z), static_cast<float>(w)};
  }
};

}  // namespace on_cpu

using __nv_fp8_e4m3 = on_cpu::Float8<on_cpu::Format<unsigned char, 4, 3, 0x7E>>;
using __nv_fp8_e5m2 = on_cpu::Float8<on_cpu::Format<unsigned char, 5, 2, 0x7B>>;
using __nv_fp8x4_e4m3 = on_cpu::Float8x4<__nv_fp8_e4m3>;
using __nv_fp8x4_e5m2 = on_cpu::Float8x4<__nv_fp8_e5m2>;
