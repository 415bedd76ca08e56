// The floating-point types of 8 and 16 bits. An operation is computed in a wider type, and its
// result is rounded once to the nearest. cuda_fp16.h, cuda_bf16.h and cuda_fp8.h define the names.
#pragma once

#include "cuda.h"

namespace on_cpu {

// The value of a number that is too large for the type.
enum class Overflow { INFINITE, LARGEST };

// `LARGEST_BITS` are the bits of the largest number.
template <typename Bits, int EXPONENT, int MANTISSA, unsigned LARGEST_BITS>
struct Format {
  static constexpr int BIAS = (1 << (EXPONENT - 1)) - 1;
  static constexpr unsigned SIGN = 1u << (EXPONENT + MANTISSA), NOT_A_NUMBER = SIGN - 1;
  static constexpr unsigned INFINITY_BITS = ((1u << EXPONENT) - 1) << MANTISSA;
  static constexpr bool HAS_INFINITY = LARGEST_BITS < INFINITY_BITS;

  static float decode(Bits bits) {
    const unsigned magnitude = bits & (SIGN - 1), mantissa = bits & ((1u << MANTISSA) - 1);
    const unsigned sign = bits & SIGN ? 1u << 31 : 0, exponent = magnitude >> MANTISSA;
    unsigned result;
    if (magnitude > LARGEST_BITS) {
      result = magnitude == INFINITY_BITS && HAS_INFINITY ? 0x7F800000u : 0x7FC00000u;
    } else if (exponent == 0 && EXPONENT < 8) {  // a subnormal number, which is normal in float32
      const float value = static_cast<float>(mantissa) * power_of_two(1 - BIAS - MANTISSA);
      result = __builtin_bit_cast(unsigned, value);
    } else {
      result = (magnitude << (23 - MANTISSA)) + (static_cast<unsigned>(127 - BIAS) << 23);
    }
    return __builtin_bit_cast(float, result | sign);
  }

  static Bits encode(double value, Overflow overflow = Overflow::INFINITE) {
    const unsigned sign = std::signbit(value) ? SIGN : 0;
    const double magnitude = std::fabs(value);
    if (value != value) return static_cast<Bits>(NOT_A_NUMBER | sign);
    unsigned bits = LARGEST_BITS + 1;
    if (magnitude < 2.0 * decode(LARGEST_BITS)) {
      const int least = 1 - BIAS, own = magnitude > 0 ? std::ilogb(magnitude) : least;
      const int exponent = own > least ? own : least;
      const double steps = std::nearbyint(std::ldexp(magnitude, MANTISSA - exponent));
      bits = (static_cast<unsigned>(exponent + BIAS) << MANTISSA) +
             static_cast<unsigned>(steps) - (1u << MANTISSA);
    }
    if (bits > LARGEST_BITS) {
      bits = overflow == Overflow::LARGEST ? LARGEST_BITS : HAS_INFINITY ? INFINITY_BITS : NOT_A_NUMBER;
    }
    return static_cast<Bits>(bits | sign);
  }

 private:
  static constexpr float power_of_two(int exponent) {
    float power = 1;
    for (; exponent < 0; ++exponent) power /= 2;
    return power;
  }
};

// A type with arithmetic. `Tag` distinguishes types of the same format.
template <typename F, typename Tag>
struct SmallFloat {
  unsigned short bits;

  SmallFloat() = default;
  SmallFloat(double value) : bits(F::encode(value)) {}
  SmallFloat(float value) : SmallFloat(static_cast<double>(value)) {}
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
  SmallFloat(T value) : SmallFloat(static_cast<double>(value)) {}
  operator float() const { return F::decode(bits); }

  static SmallFloat of_bits(unsigned short bits) {
    SmallFloat value;
    value.bits = bits;
    return value;
  }
  SmallFloat operator-() const { return of_bits(bits ^ F::SIGN); }
#define ON_CPU_OPERATOR(op)                                                                     \
  friend SmallFloat operator op(SmallFloat a, SmallFloat b) {                                   \
    return static_cast<double>(static_cast<float>(a)) op static_cast<double>(static_cast<float>(b)); \
  }                                                                                             \
  SmallFloat& operator op##=(SmallFloat other) { return *this = *this op other; }
  ON_CPU_OPERATOR(+)
  ON_CPU_OPERATOR(-)
  ON_CPU_OPERATOR(*)
  ON_CPU_OPERATOR(/)
#undef ON_CPU_OPERATOR
#define ON_CPU_COMPARISON(op)                                     \
  friend bool operator op(SmallFloat a, SmallFloat b) {           \
    return static_cast<float>(a) op static_cast<float>(b);        \
  }
  ON_CPU_COMPARISON(==)
  ON_CPU_COMPARISON(!=)
  ON_CPU_COMPARISON(<)
  ON_CPU_COMPARISON(<=)
  ON_CPU_COMPARISON(>)
  ON_CPU_COMPARISON(>=)
#undef ON_CPU_COMPARISON
};

template <typename T>
struct __attribute__((aligned(4))) Pair {
  T x, y;
  Pair() = default;
  Pair(T x, T y) : x(x), y(y) {}
#define ON_CPU_OPERATOR(op)                                                              \
  friend Pair operator op(Pair a, Pair b) { return {a.x op b.x, a.y op b.y}; }           \
  Pair& operator op##=(Pair other) { return *this = *this op other; }
  ON_CPU_OPERATOR(+)
  ON_CPU_OPERATOR(-)
  ON_CPU_OPERATOR(*)
  ON_CPU_OPERATOR(/)
#undef ON_CPU_OPERATOR
};

template <typename T>
T fused(T a, T b, T c) {  // the product is exact in float64
  return static_cast<double>(static_cast<float>(a)) * static_cast<float>(b) + static_cast<float>(c);
}

}  // namespace on_cpu

// The functions of CUDA's headers that have the same names for __half and __nv_bfloat16.
#define ON_CPU_SMALL_FLOAT(T, T2)                                                          \
  inline T __hadd(T a, T b) { return a + b; }                                              \
  inline T __hsub(T a, T b) { return a - b; }                                              \
  inline T __hmul(T a, T b) { return a * b; }                                              \
  inline T __hadd_rn(T a, T b) { return a + b; }                                           \
  inline T __hmul_rn(T a, T b) { return a * b; }                                           \
  inline T __hdiv(T a, T b) { return a / b; }                                              \
  inline T __hfma(T a, T b, T c) { return on_cpu::fused(a, b, c); }                        \
  inline T __hneg(T a) { return -a; }                                                      \
  inline T __habs(T a) { return a < T(0) ? -a : a; }                                       \
  inline T __hmax(T a, T b) { return a < b ? b : a; }                                      \
  inline T __hmin(T a, T b) { return b < a ? b : a; }                                      \
  inline bool __heq(T a, T b) { return a == b; }                                           \
  inline bool __hne(T a, T b) { return a != b; }                                           \
  inline bool __hlt(T a, T b) { return a < b; }                                            \
  inline bool __hle(T a, T b) { return a <= b; }                                           \
  inline bool __hgt(T a, T b) { return a > b; }                                            \
  inline bool __hge(T a, T b) { return a >= b; }                                           \
  inline bool __hisnan(T a) { return a != a; }                                             \
  inline T hexp(T a) { return expf(a); }                                                   \
  inline T hlog(T a) { return logf(a); }                                                   \
  inline T hsqrt(T a) { return sqrtf(a); }                                                 \
  inline T hrsqrt(T a) { return 1 / sqrtf(a); }                                            \
  inline T hrcp(T a) { return 1 / static_cast<float>(a); }                                 \
  inline T2 __hadd2(T2 a, T2 b) { return a + b; }                                          \
  inline T2 __hsub2(T2 a, T2 b) { return a - b; }                                          \
  inline T2 __hmul2(T2 a, T2 b) { return a * b; }                                          \
  inline T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
  inline T2 __hneg2(T2 a) { return {-a.x, -a.y}; }                                         \
  inline float __low2float(T2 a) { return a.x; }                                           \
  inline float __high2float(T2 a) { return a.y; }                                          \
  inline T2 __lowhigh2highlow(T2 a) { return {a.y, a.x}; }
