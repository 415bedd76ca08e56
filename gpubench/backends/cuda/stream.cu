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

// fingerprint: a number for each of several arrays, which tells whether two hold the same bits.
//
// A sum, in any order, of each 16-bit word mixed with its place (the finalizer of MurmurHash3). The
// arrays begin `apart` words from each other.

__device__ unsigned long long mixed(unsigned long long word) {
  word = (word ^ word >> 33) * 0xff51afd7ed558ccdull;
  return (word ^ word >> 33) * 0xc4ceb9fe1a85ec53ull;
}

__global__ void fingerprint(const unsigned short* arrays, long long words, long long apart,
                            unsigned long long* sums) {
  const unsigned short* array = arrays + blockIdx.y * apart;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  unsigned long long sum = 0;
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride) {
    const unsigned long long word = mixed(static_cast<unsigned long long>(i) << 16 | array[i]);
    sum += word ^ word >> 33;
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_down_sync(0xffffffff, sum, lanes);
  if (threadIdx.x % 32 == 0) atomicAdd(sums + blockIdx.y, sum);
}

// read_bytes: the rate of memory without writes. Each thread keeps four loads of 16 bytes in flight,
// and stores only if all bits of them are 1, so that the compiler keeps the loads.

__global__ void read_bytes(const uint4* from, int vectors, unsigned* out) {
  constexpr int LOADS = 4;
  const int apart = gridDim.x * blockDim.x;
  unsigned bits = ~0u;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += LOADS * apart) {
    uint4 loaded[LOADS];
#pragma unroll
    for (int load = 0; load < LOADS; ++load) {
      loaded[load] = __ldcs(from + min(i + load * apart, vectors - 1));
    }
#pragma unroll
    for (int load = 0; load < LOADS; ++load) {
      bits &= loaded[load].x & loaded[load].y & loaded[load].z & loaded[load].w;
    }
  }
  if (bits == ~0u) *out = bits;
}

// pointer_chase: the latency of memory: each load's address is what the load before it returned.

__global__ void pointer_chase(const unsigned* following, int loads, unsigned* out) {
  unsigned at = 0;
  for (int load = 0; load < loads; ++load) at = following[at];
  *out = at;  // so that the compiler cannot remove the chain
}

// wait_for_seed: keeps the stream busy until the host stores a seed, or for a number of cycles.
//
// The limit ends the deadlock of a host that waits for this kernel, such as to load a module.

__global__ void wait_for_seed(const volatile unsigned long long* stored, unsigned long long* seed,
                              long long cycles) {
  const long long start = clock64();
  while (!*stored && clock64() - start < cycles) {
  }
  *seed = *stored;
}

// new_elements: fills memory with values that a seed chooses, as `new_elements` of arrays.py does.

template <typename Word>
__global__ void new_elements(Word* memory, long long count, const Word* values, int bits,
                             const unsigned long long* seed) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  const unsigned long long secret = *seed;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    memory[i] = values[mixed(i ^ secret) >> (64 - bits)];
  }
}
