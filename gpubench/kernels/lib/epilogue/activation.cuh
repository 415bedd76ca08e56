// activation: what follows a product in a model, in the type of the sum. `fused_tile` and
// `elementwise` use it.

#pragma once

#include "../sums/sum_type.cuh"

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
