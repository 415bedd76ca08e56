// Intrinsic functions of CUDA C++. The fast versions return the same result as the exact functions.
// cuda.h includes this file.
#pragma once

#include <climits>

// glibc declares functions with the first of these names, so these are macros.
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __powf powf
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __sincosf sincosf
#define __sqrtf sqrtf

inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float a) { return a > 0 ? (a < 1 ? a : 1) : 0; }
inline float rsqrtf(float a) noexcept { return 1 / sqrtf(a); }
inline double rsqrt(double a) noexcept { return 1 / std::sqrt(a); }

#define ON_CPU_ROUNDED(suffix)                                                        \
  inline float __fadd_##suffix(float a, float b) { return a + b; }                    \
  inline float __fsub_##suffix(float a, float b) { return a - b; }                    \
  inline float __fmul_##suffix(float a, float b) { return a * b; }                    \
  inline float __fdiv_##suffix(float a, float b) { return a / b; }                    \
  inline float __frcp_##suffix(float a) { return 1 / a; }                             \
  inline float __fsqrt_##suffix(float a) { return sqrtf(a); }                         \
  inline float __fmaf_##suffix(float a, float b, float c) { return fmaf(a, b, c); }   \
  inline double __dadd_##suffix(double a, double b) { return a + b; }                 \
  inline double __dmul_##suffix(double a, double b) { return a * b; }                 \
  inline double __fma_##suffix(double a, double b, double c) { return std::fma(a, b, c); }
ON_CPU_ROUNDED(rn)

inline float __int2float_rn(int a) { return static_cast<float>(a); }
inline float __uint2float_rn(unsigned a) { return static_cast<float>(a); }
inline int __float2int_rn(float a) { return static_cast<int>(nearbyintf(a)); }
inline int __float2int_rz(float a) { return static_cast<int>(a); }
inline int __float2int_rd(float a) { return static_cast<int>(floorf(a)); }
inline int __float2int_ru(float a) { return static_cast<int>(ceilf(a)); }
inline int __float_as_int(float a) { return __builtin_bit_cast(int, a); }
inline unsigned __float_as_uint(float a) { return __builtin_bit_cast(unsigned, a); }
inline float __int_as_float(int a) { return __builtin_bit_cast(float, a); }
inline float __uint_as_float(unsigned a) { return __builtin_bit_cast(float, a); }

inline int __mul24(int a, int b) { return a * b; }
inline unsigned __umul24(unsigned a, unsigned b) { return a * b; }
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __clz(int a) { return a ? __builtin_clz(static_cast<unsigned>(a)) : 32; }
inline int __ffs(int a) noexcept { return __builtin_ffs(a); }
inline int __dp4a(int a, int b, int c) {
  const auto left = __builtin_bit_cast(char4, a), right = __builtin_bit_cast(char4, b);
  return c + left.x * right.x + left.y * right.y + left.z * right.z + left.w * right.w;
}

// Loads and stores with a hint for the cache.
#define ON_CPU_LOAD(name)                \
  template <typename T>                  \
  __forceinline__ T name(const T* from) { return *from; }
#define ON_CPU_STORE(name)               \
  template <typename T>                  \
  __forceinline__ void name(T* to, std::type_identity_t<T> value) { *to = value; }
ON_CPU_LOAD(__ldca)
ON_CPU_LOAD(__ldcg)
ON_CPU_LOAD(__ldcs)
ON_CPU_LOAD(__ldlu)
ON_CPU_LOAD(__ldcv)
ON_CPU_STORE(__stcg)
ON_CPU_STORE(__stcs)
ON_CPU_STORE(__stwb)
ON_CPU_STORE(__stwt)

inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}
inline long long clock64() { return 0; }
inline unsigned __activemask() { return ~0u; }

// Votes: each lane sends its bit to all lanes of its mask.
inline unsigned __ballot_sync(unsigned mask, int is_set, ON_CPU_PLACE) {
  unsigned votes = 0;
  for (int lane = 0; lane < warpSize; ++lane) {
    const int vote = on_cpu::from_lane(mask, is_set != 0, lane, {file, line});
    if (mask >> lane & 1 && vote == 1) votes |= 1u << lane;
  }
  return votes;
}
inline int __any_sync(unsigned mask, int is_set, ON_CPU_PLACE) {
  return __ballot_sync(mask, is_set, file, line) != 0;
}
inline int __all_sync(unsigned mask, int is_set, ON_CPU_PLACE) {
  return __ballot_sync(mask, !is_set, file, line) == 0;
}

#ifndef ON_CPU_RECORDS
namespace on_cpu {
// Relaxed memory order, as in `atomicAdd`.
template <typename T, typename Change>
T atomic_change(T* address, Change changed) {
  T old, next;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  do {
    next = changed(old);
  } while (!__atomic_compare_exchange(address, &old, &next, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED));
  return old;
}
}  // namespace on_cpu
#define ON_CPU_ATOMIC(name, next)                                        \
  template <typename T>                                                  \
  T name(T* address, std::type_identity_t<T> value) {                    \
    return on_cpu::atomic_change(address, [&](T old) -> T { return next; }); \
  }
ON_CPU_ATOMIC(atomicSub, old - value)
ON_CPU_ATOMIC(atomicExch, value)
ON_CPU_ATOMIC(atomicMax, old < value ? value : old)
ON_CPU_ATOMIC(atomicMin, value < old ? value : old)
ON_CPU_ATOMIC(atomicOr, old | value)
ON_CPU_ATOMIC(atomicAnd, old & value)
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return on_cpu::atomic_change(address, [&](T old) { return old == expected ? value : old; });
}
#endif
