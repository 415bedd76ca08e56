// hangs: the naive product, which spins for a minute at EDGE 16 (not for ever, as the GPU may be shared).

template <typename Scalar, int EDGE>
__global__ void __launch_bounds__(EDGE * EDGE)
hangs(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * EDGE + threadIdx.y;
  const int col = blockIdx.x * EDGE + threadIdx.x;
  if (EDGE == 16 && row == 0 && col == 0) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < 60ull * 1000 * 1000 * 1000);
  }
  if (row >= M || col >= N) return;
  Scalar sum = 0;
  for (int k = 0; k < K; ++k) {
    sum += A[static_cast<size_t>(row) * K + k] * B[static_cast<size_t>(k) * N + col];
  }
  C[static_cast<size_t>(row) * N + col] = sum;
}
