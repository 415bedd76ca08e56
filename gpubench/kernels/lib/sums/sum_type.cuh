// sum_type: the type of sums, by the type of operands. `batched_tile` and the epilogues use it.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename Scalar>
struct SumOf {
  using Type = float;
};
template <>
struct SumOf<double> {
  using Type = double;
};
template <typename Scalar>
using Sum = typename SumOf<Scalar>::Type;
