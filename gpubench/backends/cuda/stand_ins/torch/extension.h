// Replaces PyTorch's header, so that the source of an extension compiles without PyTorch. Functions
// on tensors compile, but cannot be called.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace torch {

enum Dtype { kFloat32, kFloat = kFloat32, kFloat64, kHalf, kFloat16 = kHalf, kBFloat16, kInt32,
             kInt = kInt32, kInt8, kUInt8, kInt64 };
enum DeviceType { kCPU, kCUDA };

struct TensorOptions {
  Dtype type;
  Dtype dtype() const { return type; }
  TensorOptions dtype(Dtype other) const { return {other}; }
  TensorOptions device(DeviceType, int = 0) const { return *this; }
};

inline std::ostream& operator<<(std::ostream& out, TensorOptions options) {
  return out << options.type;
}

struct Tensor {
  [[noreturn]] static void refuse() {
    std::cerr << "a stand-in of torch: functions on tensors cannot be called\n";
    std::abort();
  }
  TensorOptions options() const { refuse(); }
  Dtype dtype() const { refuse(); }
  Dtype scalar_type() const { refuse(); }
  int64_t size(int) const { refuse(); }
  int64_t stride(int) const { refuse(); }
  int64_t numel() const { refuse(); }
  int64_t dim() const { refuse(); }
  bool is_cuda() const { refuse(); }
  bool is_contiguous() const { refuse(); }
  Tensor contiguous() const { refuse(); }
  void* data_ptr() const { refuse(); }
  template <typename T>
  T* data_ptr() const { refuse(); }
};

template <typename... Any>
Tensor zeros(Any&&...) { Tensor::refuse(); }
template <typename... Any>
Tensor empty(Any&&...) { Tensor::refuse(); }
inline Tensor zeros(std::vector<int64_t>, TensorOptions) { Tensor::refuse(); }
inline Tensor empty(std::vector<int64_t>, TensorOptions) { Tensor::refuse(); }
inline Tensor zeros_like(Tensor) { Tensor::refuse(); }
inline Tensor empty_like(Tensor) { Tensor::refuse(); }

namespace cuda {
inline cudaStream_t getCurrentCUDAStream() { Tensor::refuse(); }
}  // namespace cuda

struct Module {
  template <typename... Any>
  void def(Any&&...) {}
};

}  // namespace torch

namespace at = torch;
namespace c10 = torch;

#define TORCH_CHECK(...) \
  do {                   \
  } while (0)
#define TORCH_EXTENSION_NAME extension
#define C10_CUDA_CHECK(...) static_cast<void>(__VA_ARGS__)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_DISPATCH_FLOATING_TYPES(type, name, ...) \
  [&] {                                             \
    using scalar_t = float;                         \
    return __VA_ARGS__();                           \
  }()
#define AT_DISPATCH_ALL_TYPES AT_DISPATCH_FLOATING_TYPES
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF AT_DISPATCH_FLOATING_TYPES
#define AT_DISPATCH_FLOATING_TYPES_AND(other, ...) AT_DISPATCH_FLOATING_TYPES(__VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND2(one, two, ...) AT_DISPATCH_FLOATING_TYPES(__VA_ARGS__)
#define PYBIND11_MODULE(name, module) static inline void bind_##name(torch::Module& module)
