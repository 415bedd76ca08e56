// The part of torch::Tensor that CUDA-L2's functions use: a row-major matrix of half in the memory
// of the GPU. Their sources are compiled without PyTorch.
#pragma once
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace at {
using Half = half;
}

namespace torch {
using Half = half;
enum Dtype { kHalf };
constexpr Dtype kFloat16 = kHalf;

struct Tensor {
  void *address;
  int64_t rows, columns;

  void *data_ptr() const { return address; }
  template <typename T>
  T *data_ptr() const {
    return static_cast<T *>(address);
  }
  int64_t size(int i) const { return i ? columns : rows; }
  int64_t dim() const { return 2; }
  int64_t numel() const { return rows * columns; }
  bool is_cuda() const { return true; }
  bool is_contiguous() const { return true; }
  Dtype dtype() const { return kHalf; }
  Dtype scalar_type() const { return kHalf; }
  Tensor options() const { return *this; }
};

inline std::ostream &operator<<(std::ostream &out, const Tensor &) { return out; }
}  // namespace torch

#define TORCH_CHECK(condition, ...) \
  if (!(condition)) throw std::runtime_error(#condition)
