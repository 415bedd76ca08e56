// float16.
#pragma once

#include "small_floats.h"

namespace on_cpu {
using HalfFormat = Format<unsigned short, 5, 10, 0x7BFF>;
}
using __half = on_cpu::SmallFloat<on_cpu::HalfFormat, struct __half_tag>;
using __half2 = on_cpu::Pair<__half>;
using half = __half;
using half2 = __half2;
ON_CPU_SMALL_FLOAT(__half, __half2)

inline __half __float2half(float a) { return a; }
inline __half __float2half_rn(float a) { return a; }
inline __half __double2half(double a) { return a; }
inline __half __int2half_rn(int a) { return a; }
inline float __half2float(__half a) { return a; }
inline int __half2int_rn(__half a) { return static_cast<int>(nearbyintf(a)); }
inline int __half2int_rz(__half a) { return static_cast<int>(static_cast<float>(a)); }
inline __half __ushort_as_half(unsigned short a) { return __half::of_bits(a); }
inline __half __short_as_half(short a) { return __half::of_bits(static_cast<unsigned short>(a)); }
inline unsigned short __half_as_ushort(__half a) { return a.bits; }
inline short __half_as_short(__half a) { return static_cast<short>(a.bits); }
inline __half2 __float2half2_rn(float a) { return {a, a}; }
inline __half2 __floats2half2_rn(float a, float b) { return {a, b}; }
inline __half2 __float22half2_rn(float2 a) { return {a.x, a.y}; }
inline float2 __half22float2(__half2 a) { return {a.x, a.y}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
