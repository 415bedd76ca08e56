// Kernels that do one thing, to see what the gap between two launches depends on.

__global__ void write_memory(float4* out, long long count) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
    out[i] = make_float4(1, 2, 3, 4);
}

__global__ void read_memory(const float4* in, long long count, float* out) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  float sum = 0;
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    const float4 value = in[i];
    sum += value.x + value.y + value.z + value.w;
  }
  if (sum == 0.123f) *out = sum;  // so that the compiler cannot remove the loads
}

// Every multiprocessor is busy, and memory is idle.
__global__ void spin(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}
