// blocking_kernel: keeps the stream busy while the host enqueues what is timed behind it.
//
// It spins for a fixed number of cycles and does not wait for a flag of the host: with lazy module
// loading, a kernel that waits for the host can deadlock.

__global__ void blocking_kernel(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

// timestamp_kernel: records a multiprocessor's cycle counter, the time, and which multiprocessor.
//
// Two timestamps around a sample give the clock it ran at: cycles over nanoseconds. Each
// multiprocessor has its own counter, so only timestamps of the same one can be compared.

__global__ void timestamp_kernel(long long* timestamp) {
  unsigned multiprocessor;
  long long nanoseconds;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  timestamp[0] = clock64();
  timestamp[1] = nanoseconds;
  timestamp[2] = multiprocessor;
}

// multiply_add: the float32 multiply-add rate of a device: independent chains, no memory.
//
// Sixteen chains per thread hide the latency of the unit (four cycles) at any occupancy.

constexpr int CHAINS = 16;

__global__ void __launch_bounds__(256) multiply_add(float* out, float a, float b, int steps) {
  float x[CHAINS];
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) x[i] = threadIdx.x + i;
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) x[i] = x[i] * a + b;
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) sum += x[i];
  // Stored so that the compiler cannot remove the work; nothing reads it.
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
