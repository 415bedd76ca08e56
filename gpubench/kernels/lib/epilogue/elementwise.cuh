// elementwise: finishes the elements of a product that another kernel has stored.
//
// A thread reads LANES neighbouring sums, and stores as many results, each with one instruction.
// `product` may be C itself.

#pragma once

#include "../sums/sum_type.cuh"
#include "activation.cuh"

template <typename T, int LANES>
struct alignas(LANES * sizeof(T)) Lanes {
  T at[LANES];
};

template <typename Scalar, typename Act, bool HAS_RESIDUAL, int LANES>
__global__ void elementwise(const Sum<Scalar>* product, const Scalar* bias, const Scalar* residual,
                            Scalar* C, int rows, int columns) {
  using Sums = Lanes<Sum<Scalar>, LANES>;
  using Scalars = Lanes<Scalar, LANES>;
  const int width = columns / LANES;  // LANES divide the columns
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= width) return;
  const Scalars added = reinterpret_cast<const Scalars*>(bias)[column];
  for (int row = blockIdx.y; row < rows; row += gridDim.y) {
    const size_t place = static_cast<size_t>(row) * width + column;
    const Sums sums = reinterpret_cast<const Sums*>(product)[place];
    Scalars results;
    Scalars after;
    if constexpr (HAS_RESIDUAL) after = reinterpret_cast<const Scalars*>(residual)[place];
#pragma unroll
    for (int i = 0; i < LANES; ++i) {
      Sum<Scalar> z = Act()(sums.at[i] + static_cast<Sum<Scalar>>(added.at[i]));
      if constexpr (HAS_RESIDUAL) z += static_cast<Sum<Scalar>>(after.at[i]);
      results.at[i] = static_cast<Scalar>(z);
    }
    reinterpret_cast<Scalars*>(C)[place] = results;
  }
}
