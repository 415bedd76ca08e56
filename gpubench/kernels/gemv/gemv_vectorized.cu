// gemv_vectorized: gemv_warp with loads of 16 bytes, UNROLL of them in flight for each row.
//
// A product of matrix and vector uses each element of A once, so it is at most as fast as A can be
// read. To keep memory busy, enough bytes must be in flight at any time: bandwidth × latency, about
// 30 KB per multiprocessor on an H200. Loads of 16 bytes bring four times as much per instruction
// as the loads of `gemv_warp`. Unrolled, a lane has ROWS·UNROLL loads in flight.
//
// Rows start at multiples of 16 bytes only if N is a multiple of the vector (4 elements of
// float32). Otherwise each row has a head of up to three elements, then vectors, then a tail. x is
// not aligned with these vectors, so its elements are loaded one by one, from the cache.

#include "../lib/sums/sums.cuh"
#include "../lib/tiles/vector.cuh"

// Computes one thread's part, out of WIDTH threads, of ROWS rows that start at 16 bytes, like x.
template <typename Scalar, int WIDTH, int ROWS, int UNROLL>
__device__ void aligned_rows(const Scalar* const (&rows)[ROWS], const Scalar* x, int N, int thread,
                             Scalar (&sums)[ROWS]) {
  using Pack = Vector<Scalar>;
  const size_t packs = N / Pack::SIZE;
  const Pack* x_packs = reinterpret_cast<const Pack*>(x);
  const Pack* a_packs[ROWS];
#pragma unroll
  for (int row = 0; row < ROWS; ++row) a_packs[row] = reinterpret_cast<const Pack*>(rows[row]);

  size_t at = thread;
  for (; at + (UNROLL - 1) * WIDTH < packs; at += UNROLL * WIDTH) {
    Pack a[UNROLL][ROWS], b[UNROLL];
#pragma unroll
    for (int step = 0; step < UNROLL; ++step) {
#pragma unroll
      for (int row = 0; row < ROWS; ++row) {
        a[step][row] = load_streaming(a_packs[row] + at + step * WIDTH);
      }
    }
#pragma unroll
    for (int step = 0; step < UNROLL; ++step) b[step] = x_packs[at + step * WIDTH];
#pragma unroll
    for (int step = 0; step < UNROLL; ++step) {
#pragma unroll
      for (int row = 0; row < ROWS; ++row) {
#pragma unroll
        for (int i = 0; i < Pack::SIZE; ++i) sums[row] += a[step][row].lanes[i] * b[step].lanes[i];
      }
    }
  }
  for (; at < packs; at += WIDTH) {
    const Pack b = x_packs[at];
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      const Pack a = load_streaming(a_packs[row] + at);
#pragma unroll
      for (int i = 0; i < Pack::SIZE; ++i) sums[row] += a.lanes[i] * b.lanes[i];
    }
  }
}

// Computes one thread's part, out of WIDTH threads, of a row that starts at any address.
template <typename Scalar, int WIDTH, int UNROLL>
__device__ Scalar unaligned_row(const Scalar* row, const Scalar* x, int N, int thread) {
  using Pack = Vector<Scalar>;
  const int past = reinterpret_cast<size_t>(row) / sizeof(Scalar) % Pack::SIZE;
  const int head = min(past == 0 ? 0 : Pack::SIZE - past, N);
  const size_t packs = (N - head) / Pack::SIZE;
  const Pack* a_packs = reinterpret_cast<const Pack*>(row + head);

  Scalar sum = thread < head ? row[thread] * x[thread] : Scalar(0);
#pragma unroll UNROLL
  for (size_t at = thread; at < packs; at += WIDTH) {
    const Pack a = load_streaming(a_packs + at);
    const Scalar* b = x + head + at * Pack::SIZE;
#pragma unroll
    for (int i = 0; i < Pack::SIZE; ++i) sum += a.lanes[i] * b[i];
  }
  const size_t tail = head + packs * Pack::SIZE + thread;
  return tail < N ? sum + row[tail] * x[tail] : sum;
}

// Computes y = A·x, with ROWS rows per warp.
template <typename Scalar, int THREADS, int ROWS, int UNROLL>
__global__ void __launch_bounds__(THREADS)
gemv_vectorized(const Scalar* A, const Scalar* x, Scalar* y, int M, int N) {
  const int lane = threadIdx.x % 32;
  const size_t warp = static_cast<size_t>(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
  const size_t row0 = warp * ROWS;
  if (row0 >= M) return;  // the whole warp

  // Past the edge the last row is read again, and its surplus sums are not stored.
  const Scalar* rows[ROWS];
  Scalar sums[ROWS] = {};
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    rows[row] = A + (row0 + row < M ? row0 + row : M - 1) * static_cast<size_t>(N);
  }
  if (aligned(A, x, N)) {
    aligned_rows<Scalar, 32, ROWS, UNROLL>(rows, x, N, lane, sums);
  } else {
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      sums[row] = unaligned_row<Scalar, 32, UNROLL>(rows[row], x, N, lane);
    }
  }
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    const Scalar sum = warp_sum(sums[row]);
    if (lane == 0 && row0 + row < M) y[row0 + row] = sum;
  }
}
