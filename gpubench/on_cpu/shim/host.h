// The functions of CUDA's runtime that host code calls around its launches. GPU memory is memory of
// the host, and each call is synchronous. cuda.h includes this file.
#pragma once

#include <cstdlib>
#include <utility>

enum cudaError_t { cudaSuccess, cudaErrorInvalidValue, cudaErrorMemoryAllocation };
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault,
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize,
  cudaFuncAttributePreferredSharedMemoryCarveout,
};
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1 };
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock,
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrMaxSharedMemoryPerBlock,
  cudaDevAttrMaxSharedMemoryPerBlockOptin,
};
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cublasHandle_t = struct cublasContext*;

struct cudaDeviceProp {  // an H100 with one multiprocessor, for which `check` makes its launches
  char name[256] = "CPU";
  size_t totalGlobalMem = size_t{1} << 34, sharedMemPerBlock = 48 << 10;
  size_t sharedMemPerBlockOptin = 227 << 10, sharedMemPerMultiprocessor = 228 << 10;
  int major = 9, minor = 0, warpSize = 32, multiProcessorCount = 1;
  int maxThreadsPerBlock = 1024, maxThreadsPerMultiProcessor = 2048, regsPerBlock = 65536;
  int maxThreadsDim[3] = {1024, 1024, 64}, maxGridSize[3] = {2147483647, 65535, 65535};
};

template <typename T>
cudaError_t cudaMalloc(T** pointer, size_t bytes) {
  *pointer = static_cast<T*>(on_cpu::allocate(bytes));
  return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
}
template <typename T>
cudaError_t cudaMallocManaged(T** pointer, size_t bytes, unsigned = 1) {
  return cudaMalloc(pointer, bytes);
}
template <typename T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes, unsigned = 0) {
  return cudaMalloc(pointer, bytes);
}
template <typename T>
cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned = 0) {
  return cudaMalloc(pointer, bytes);
}
template <typename T>
cudaError_t cudaMallocAsync(T** pointer, size_t bytes, cudaStream_t) {
  return cudaMalloc(pointer, bytes);
}
inline cudaError_t cudaFree(void* pointer) {
  on_cpu::deallocate(pointer);
  return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }
inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}
template <typename T>
cudaError_t cudaMemcpyToSymbol(T& to, const void* from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyHostToDevice) {
  return cudaMemcpy(reinterpret_cast<char*>(&to) + offset, from, bytes, cudaMemcpyDefault);
}
template <typename T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& from, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  return cudaMemcpy(to, reinterpret_cast<const char*>(&from) + offset, bytes, cudaMemcpyDefault);
}
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr) {
  return cudaMemset(to, value, bytes);
}

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error";
}
inline const char* cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int) {
  const cudaDeviceProp of;
  *value = what == cudaDevAttrMaxThreadsPerBlock      ? of.maxThreadsPerBlock
           : what == cudaDevAttrMultiProcessorCount   ? of.multiProcessorCount
           : what == cudaDevAttrMaxSharedMemoryPerBlock ? static_cast<int>(of.sharedMemPerBlock)
                                                        : static_cast<int>(of.sharedMemPerBlockOptin);
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* of, int) {
  *of = {};
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T, int, size_t) {
  *blocks = 1;
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* blocks, int* threads, T, size_t = 0,
                                               int most = 0) {
  *blocks = 1;
  *threads = most > 0 && most < 1024 ? most : 1024;
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}

// Functions that do nothing on the CPU.
#define ON_CPU_NOTHING(name)                \
  template <typename... T>                  \
  cudaError_t name(const T&...) {           \
    return cudaSuccess;                     \
  }
ON_CPU_NOTHING(cudaDeviceSynchronize)
ON_CPU_NOTHING(cudaThreadSynchronize)
ON_CPU_NOTHING(cudaDeviceReset)
ON_CPU_NOTHING(cudaDriverGetVersion)
ON_CPU_NOTHING(cudaRuntimeGetVersion)
ON_CPU_NOTHING(cudaSetDevice)
ON_CPU_NOTHING(cudaGetLastError)
ON_CPU_NOTHING(cudaPeekAtLastError)
ON_CPU_NOTHING(cudaStreamSynchronize)
ON_CPU_NOTHING(cudaStreamCreate)
ON_CPU_NOTHING(cudaStreamCreateWithFlags)
ON_CPU_NOTHING(cudaStreamDestroy)
ON_CPU_NOTHING(cudaStreamWaitEvent)
ON_CPU_NOTHING(cudaEventCreate)
ON_CPU_NOTHING(cudaEventCreateWithFlags)
ON_CPU_NOTHING(cudaEventDestroy)
ON_CPU_NOTHING(cudaEventRecord)
ON_CPU_NOTHING(cudaEventSynchronize)
ON_CPU_NOTHING(cudaFuncSetCacheConfig)
ON_CPU_NOTHING(cudaDeviceSetCacheConfig)
ON_CPU_NOTHING(cudaProfilerStart)
ON_CPU_NOTHING(cudaProfilerStop)
template <typename... P>
cudaError_t cudaFuncSetAttribute(void (*)(P...), cudaFuncAttribute, int) {
  return cudaSuccess;
}

namespace on_cpu {

// unit.py replaces `kernel<<<grid, block>>>(…)` by `Configured(grid, block) << [&] { kernel(…); }`.
// Each thread evaluates the arguments. The host cannot change them before the launch has ended.
struct Configured {
  Index grid, block;
  size_t shared_bytes;
  Place place;
  Configured(dim3 grid, dim3 block, size_t shared_bytes = 0, cudaStream_t = nullptr, ON_CPU_PLACE)
      : grid(grid), block(block), shared_bytes(shared_bytes), place{file, line} {}
  template <typename Kernel>
  void operator<<(Kernel kernel) const {
    const auto call = [](Arguments arguments) { (*static_cast<Kernel*>(*arguments.structures))(); };
    launch_from_host(grid, block, shared_bytes, call, &kernel, place);
  }
};

template <typename... P, size_t... I>
void call_with(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_reference_t<P>*>(arguments[I])...);
}

}  // namespace on_cpu

// unit.py removes a cast of the kernel to `void*`, which would hide the types of its parameters.
template <typename... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes = 0, cudaStream_t stream = nullptr, ON_CPU_PLACE) {
  on_cpu::Configured(grid, block, shared_bytes, stream, file, line) << [=] {
    on_cpu::call_with(kernel, arguments, std::index_sequence_for<P...>());
  };
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t = 0, cudaStream_t = nullptr)
    __attribute__((error("write cudaLaunchKernel(kernel, ...): a void* hides its parameters")));

enum cudaLaunchAttributeID {
  cudaLaunchAttributeCooperative,
  cudaLaunchAttributeProgrammaticStreamSerialization,
};
union cudaLaunchAttributeValue {
  int cooperative, programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {  // unit.py renames `gridDim` and `blockDim` in host functions
  dim3 gridDim_of_host, blockDim_of_host;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <typename... P, typename... Values>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* to, void (*kernel)(P...),
                               Values... values) {
  on_cpu::Configured(to->gridDim_of_host, to->blockDim_of_host, to->dynamicSmemBytes) << [=] {
    kernel(values...);
  };
  return cudaSuccess;
}
