// Kernels with faults. Each is the naive product, but at EDGE 16 it has the fault that it is named
// after.
//
// `research/faults.py` sweeps them beside good kernels.

template <int EDGE, typename Scalar>
__device__ void product(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K, int terms) {
  const int row = blockIdx.y * EDGE + threadIdx.y;
  const int col = blockIdx.x * EDGE + threadIdx.x;
  if (row >= M || col >= N) return;
  Scalar sum = 0;
  for (int k = 0; k < terms; ++k) {
    sum += A[static_cast<size_t>(row) * K + k] * B[static_cast<size_t>(k) * N + col];
  }
  C[static_cast<size_t>(row) * N + col] = sum;
}

template <int EDGE>
__device__ bool is_first() {
  return EDGE == 16 && blockIdx.x + blockIdx.y + threadIdx.x + threadIdx.y == 0;
}

// Asserts a false condition: a device-side assertion.
template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
asserts(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  assert(!is_first<EDGE>());
  product<EDGE>(A, B, C, M, N, K, K);
}

template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
does_not_compile(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  static_assert(EDGE != 16, "an edge of 16 is not for this kernel");
  product<EDGE>(A, B, C, M, N, K, K);
}

// Spins for a minute, and not for ever, because the GPU may be shared.
template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
hangs(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  if (is_first<EDGE>()) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < 60ull * 1000 * 1000 * 1000);
  }
  product<EDGE>(A, B, C, M, N, K, K);
}

// Writes far outside of C.
template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
illegal_access(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  if (is_first<EDGE>()) C[1ll << 40] = A[0];
  product<EDGE>(A, B, C, M, N, K, K);
}

// Writes to an address that is not aligned.
template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
misaligned(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  if (is_first<EDGE>()) {
    *reinterpret_cast<Scalar*>(reinterpret_cast<char*>(C) + 1) = A[0];
  }
  product<EDGE>(A, B, C, M, N, K, K);
}

template <typename Scalar>
__device__ __noinline__ Scalar descend(const Scalar* A, int depth) {
  volatile Scalar frame[64];
  frame[depth & 63] = A[0];
  return depth < (1 << 30) ? descend<Scalar>(A, depth + 1) + frame[(depth + 1) & 63] : frame[0];
}

// Calls itself until the stack overflows.
template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
overflows_stack(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  if (is_first<EDGE>()) C[0] = descend<Scalar>(A, K);
  product<EDGE>(A, B, C, M, N, K, K);
}

// Leaves out the last product of each sum.
template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
wrong(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  product<EDGE>(A, B, C, M, N, K, K - (EDGE == 16));
}
