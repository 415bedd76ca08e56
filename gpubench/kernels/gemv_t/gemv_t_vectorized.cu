// gemv_t_vectorized: a thread adds up 16 bytes of neighbouring columns, over ROWS rows of A.
//
// Against `gemv_t_thread`: a load brings 16 bytes, and UNROLL loads are in flight. The rows are cut
// into slabs of ROWS, each with its own blocks. So there is work for a whole GPU whether A is wide
// or tall. A block's sums are a part of the result. The parts go to the workspace, and a second
// or tall. A block's sums are a part of the result. The parts go to the workspace, and a second
// launch adds them up. This moves 2/ROWS of A's bytes, mostly in the cache.
// If N is not a multiple of the vector, a thread's columns lie THREADS apart instead of side by
// side, and are loaded one by one, still coalesced. If rows are so narrow that at least half of the
// threads would have no column, these threads take the next rows, and the block adds up their sums.

#include "../lib/sums/partial_sums.cuh"
#include "../lib/tiles/vector.cuh"

// Writes a block's part of y = Aᵀ·x, for rows `first` to `last`, to `part`.
template <typename Scalar, int THREADS, int UNROLL, bool ALIGNED>
__device__ void slab(const Scalar* A, const Scalar* x, Scalar* part, size_t first, size_t last,
                     size_t block, int N) {
  using Pack = Vector<Scalar>;
  constexpr int SIZE = Pack::SIZE;
  const size_t column0 = block * THREADS * SIZE + threadIdx.x * (ALIGNED ? SIZE : 1);
  constexpr int STEP = ALIGNED ? 1 : THREADS;  // between a thread's columns
  if (column0 >= N) return;

  Pack sum{};
  const Scalar* a = A + first * N + column0;
  size_t row = first;
  auto load = [&](const Scalar* from) {
    Pack pack;
    if (ALIGNED) {
      pack = load_streaming(reinterpret_cast<const Pack*>(from));
    } else {
#pragma unroll
      for (int i = 0; i < SIZE; ++i) {
        pack.lanes[i] = column0 + i * STEP < N ? from[i * STEP] : Scalar(0);
      }
    }
    return pack;
  };
  for (; row + UNROLL <= last; row += UNROLL, a += static_cast<size_t>(UNROLL) * N) {
    Pack packs[UNROLL];
#pragma unroll
    for (int step = 0; step < UNROLL; ++step) packs[step] = load(a + static_cast<size_t>(step) * N);
#pragma unroll
    for (int step = 0; step < UNROLL; ++step) {
      const Scalar x_i = x[row + step];
#pragma unroll
      for (int i = 0; i < SIZE; ++i) sum.lanes[i] += packs[step].lanes[i] * x_i;
    }
  }
  for (; row < last; ++row, a += N) {
    const Pack pack = load(a);
#pragma unroll
    for (int i = 0; i < SIZE; ++i) sum.lanes[i] += pack.lanes[i] * x[row];
  }
  if (ALIGNED) {
    *reinterpret_cast<Pack*>(part + column0) = sum;
  } else {
#pragma unroll
    for (int i = 0; i < SIZE; ++i) {
      if (column0 + i * STEP < N) part[column0 + i * STEP] = sum.lanes[i];
    }
  }
}

// Writes the same part if a row has at most half as many columns as the threads take. The threads
// then take several rows at a time, which are contiguous in memory.
template <typename Scalar, int THREADS, int UNROLL, bool ALIGNED>
__device__ void narrow_slab(const Scalar* A, const Scalar* x, Scalar* part, size_t first,
                            size_t last, int N) {
  using Pack = Vector<Scalar>;
  constexpr int SIZE = ALIGNED ? Pack::SIZE : 1;
  __shared__ Scalar sums[THREADS * SIZE];

  const int width = N / SIZE;
  const int groups = THREADS / width;
  const int group = threadIdx.x / width;
  const int column = threadIdx.x % width * SIZE;
  if (group < groups) {
    Scalar sum[SIZE] = {};
#pragma unroll UNROLL
    for (size_t row = first + group; row < last; row += groups) {
      const Scalar* a = A + row * N + column;
      const Scalar x_i = x[row];
      if constexpr (ALIGNED) {
        const Pack pack = load_streaming(reinterpret_cast<const Pack*>(a));
#pragma unroll
        for (int i = 0; i < SIZE; ++i) sum[i] += pack.lanes[i] * x_i;
      } else {
        sum[0] += *a * x_i;
      }
    }
#pragma unroll
    for (int i = 0; i < SIZE; ++i) sums[group * N + column + i] = sum[i];
  }
  __syncthreads();
  for (int at = threadIdx.x; at < N; at += THREADS) {
    Scalar sum = 0;
    for (int other = 0; other < groups; ++other) sum += sums[other * N + at];
    part[at] = sum;
  }
}

// Writes each block's part of y = Aᵀ·x. If there is only one slab, it is written to y itself.
template <typename Scalar, int THREADS, int ROWS, int UNROLL>
__device__ void columns_by_slabs(const Scalar* A, const Scalar* x, Scalar* y, Scalar* parts, int M,
                                 int N) {
  constexpr size_t COVERED = static_cast<size_t>(THREADS) * Vector<Scalar>::SIZE;
  const size_t across = (N + COVERED - 1) / COVERED;
  const size_t block = blockIdx.x % across;  // neighbouring blocks are neighbours in a slab
  const size_t number = blockIdx.x / across;
  const size_t first = number * ROWS;
  const size_t last = first + ROWS < M ? first + ROWS : M;
  Scalar* part = M <= ROWS ? y : parts + number * N;
  const bool vectors = aligned(A, y, N);
  if (vectors && N <= COVERED / 2) {
    narrow_slab<Scalar, THREADS, UNROLL, true>(A, x, part, first, last, N);
  } else if (N <= THREADS / 2) {
    narrow_slab<Scalar, THREADS, UNROLL, false>(A, x, part, first, last, N);
  } else if (vectors) {
    slab<Scalar, THREADS, UNROLL, true>(A, x, part, first, last, block, N);
  } else {
    slab<Scalar, THREADS, UNROLL, false>(A, x, part, first, last, block, N);
  }
}

template <typename Scalar, int THREADS, int ROWS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
gemv_t_vectorized(const Scalar* A, const Scalar* x, Scalar* y, Scalar* workspace, int M, int N) {
  columns_by_slabs<Scalar, THREADS, ROWS, UNROLL>(A, x, y, workspace, M, N);
}

template <typename Scalar, int THREADS, int ROWS, int UNROLL>
__global__ void gemv_t_vectorized_sum(const Scalar* A, const Scalar* x, Scalar* y,
                                      Scalar* workspace, int M, int N) {
  partial_sums(workspace, y, N, M / ROWS + (M % ROWS > 0));
}
