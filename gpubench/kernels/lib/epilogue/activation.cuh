// activation: what follows a product in a model, in the type of the sum. `fused_tile`,
// `elementwise` and `finish` use it.

#pragma once

struct Bias {
  template <typename T>
  __device__ T operator()(T z) const {
    return z;
  }
};

struct Relu {
  template <typename T>
  __device__ T operator()(T z) const {
    return z < 0 ? T(0) : z;  // a NaN stays NaN
  }
};

struct Gelu {  // the form with tanh
  template <typename T>
  __device__ T operator()(T z) const {
    return T(0.5) * z * (1 + tanh(T(0.7978845608028654) * (z + T(0.044715) * z * z * z)));
  }
};

struct Silu {
  template <typename T>
  __device__ T operator()(T z) const {
    return z / (1 + exp(-z));
  }
};

// Returns z / (1 + 2^power) for results of 16 bits, by two instructions of the special function
// unit. The error is a few units in the last place of a float. Very small results become zero.
__device__ __forceinline__ float over_one_plus_exp2(float z, float power) {
  float gate;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(gate) : "f"(power));
  asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(gate) : "f"(1 + gate));
  return z * gate;
}

struct FastSilu {  // z / (1 + 2^(-z·log2(e)))
  __device__ __forceinline__ float operator()(float z) const {
    return over_one_plus_exp2(z, -1.4426950408889634f * z);
  }
};

struct FastGelu {  // z·(1 + tanh(u))/2 = z / (1 + exp(-2u))
  __device__ __forceinline__ float operator()(float z) const {
    constexpr float TWO_ROOTS = -2 * 1.4426950408889634f * 0.7978845608028654f;
    return over_one_plus_exp2(z, TWO_ROOTS * z * (1 + 0.044715f * z * z));
  }
};
