// Wrappers of the CUDA runtime's functions, in the shared library of a host function.
//
// The linker's option --wrap makes the host function call these wrappers. They put calls in the
// default stream into the stream that gpubench times. During a recording, they record the calls.

#include <cuda_runtime.h>

#include <string>

namespace {

cudaStream_t timed_stream = nullptr;
bool recording = false;
std::string record;

void note(const char *name) {
  if (recording) record.append(name).append("\n");
}

cudaStream_t stream_for(cudaStream_t stream) {
  const bool is_default =
      stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  return is_default ? timed_stream : stream;
}

void note_launch(const void *function) {
  if (!recording) return;
  const char *name = nullptr;
#if CUDART_VERSION >= 12030
  if (cudaFuncGetName(&name, function) != cudaSuccess) name = nullptr;
#endif
  record.append("launch ").append(name ? name : "?").append("\n");
}

}  // namespace

extern "C" {

void gpubench_use(cudaStream_t stream) { timed_stream = stream; }

void gpubench_record() {
  record.clear();
  recording = true;
}

const char *gpubench_recorded() {
  recording = false;
  return record.c_str();
}

int gpubench_error() { return cudaGetLastError(); }

const char *gpubench_error_name(int error) {
  return cudaGetErrorName(static_cast<cudaError_t>(error));
}

#define WRAP(name, parameters, arguments)      \
  cudaError_t __real_##name parameters;        \
  cudaError_t __wrap_##name parameters {       \
    note(#name);                               \
    return __real_##name arguments;            \
  }

#define WRAP_LAUNCH(name, type)                                                             \
  cudaError_t __real_##name(type, dim3, dim3, void **, size_t, cudaStream_t);               \
  cudaError_t __wrap_##name(type function, dim3 grid, dim3 block, void **arguments,         \
                            size_t bytes, cudaStream_t stream) {                            \
    note_launch(reinterpret_cast<const void *>(function));                                  \
    return __real_##name(function, grid, block, arguments, bytes, stream_for(stream));      \
  }

WRAP_LAUNCH(cudaLaunchKernel, const void *)
WRAP_LAUNCH(__cudaLaunchKernel, cudaKernel_t)
WRAP_LAUNCH(cudaLaunchCooperativeKernel, const void *)

cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t *, const void *, void **);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                       void **arguments) {
  note_launch(function);
  cudaLaunchConfig_t changed = *config;
  changed.stream = stream_for(config->stream);
  return __real_cudaLaunchKernelExC(&changed, function, arguments);
}

WRAP(cudaMalloc, (void **pointer, size_t bytes), (pointer, bytes))
WRAP(cudaFree, (void *pointer), (pointer))
WRAP(cudaMemcpy, (void *to, const void *from, size_t bytes, cudaMemcpyKind kind),
     (to, from, bytes, kind))
WRAP(cudaMemcpyAsync,
     (void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream),
     (to, from, bytes, kind, stream_for(stream)))
WRAP(cudaMemset, (void *pointer, int value, size_t bytes), (pointer, value, bytes))
WRAP(cudaMemsetAsync, (void *pointer, int value, size_t bytes, cudaStream_t stream),
     (pointer, value, bytes, stream_for(stream)))
WRAP(cudaDeviceSynchronize, (), ())
WRAP(cudaStreamSynchronize, (cudaStream_t stream), (stream_for(stream)))
WRAP(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, stream_for(stream)))
WRAP(cudaEventSynchronize, (cudaEvent_t event), (event))
}
