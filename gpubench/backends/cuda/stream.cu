// gate: keeps the stream busy while the host enqueues what is to be timed behind it.
//
// It spins for a fixed number of cycles and not until the host raises a flag: with lazy module
// loading, a kernel that waits for the host can wait for itself.

__global__ void gate(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

// stamp: notes the cycle counter of a multiprocessor, the time, and which multiprocessor it was.
//
// Two stamps round a sample give the clock it ran at: cycles over nanoseconds. Each
// multiprocessor has a counter of its own, so only stamps from the same one can be compared.

__global__ void stamp(long long* at) {
  unsigned multiprocessor;
  long long nanoseconds;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  at[0] = clock64();
  at[1] = nanoseconds;
  at[2] = multiprocessor;
}

// multiply_add: the float32 multiply-adds a device can do: independent chains, no memory.
//
// Sixteen chains a thread hide the latency of the unit (four cycles) at any occupancy.

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
  // Written so that the compiler cannot drop the work; read by nobody.
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
