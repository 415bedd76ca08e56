// interleaved_product: the multiplying loop that `interleaved` introduces and explains.
//
// A stage of shared memory holds BK transposed rows of A's tile, then BK rows of B's tile. If BK
// does not divide K, the first step is the short step, with zeros for the missing values of k. So
// the loop need not check bounds along K. Rows past M and columns past N are zeros, too.

#pragma once

#include "../tma/async_copy.cuh"
#include "fragments.cuh"
#include "rasterization.cuh"

// The layout of A in global memory: row-major, or the panels that `packed_a` writes.
enum class Layout { ROWS, PANELS };

// Adds the product of this thread's rows of A and columns of B to `sum`, along `depth` values of k
// of the tile at `origin`. Rows of A are K elements apart, and rows of B are N elements apart.
// ALIGNED says that N is a multiple of 4. No copy is pending afterwards.
template <Layout A_LAYOUT, bool ALIGNED, int BM, int BN, int BK, int STAGES, typename Scalar,
          int TM, int TN>
__device__ __forceinline__ void interleaved_product(const Scalar* A, const Scalar* B, int M, int N,
                                                    int K, int depth, Origin origin,
                                                    Scalar* stages, Scalar (&sum)[TM][TN]) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  constexpr int WARPS_X = BN / (8 * TN);
  constexpr int CHUNK = 8;  // values of k
  constexpr int CHUNKS = BK / CHUNK;
  // A row of A's tile is padded, so that transposed writes go to 32 banks. Panels need no padding.
  constexpr int A_ROW = A_LAYOUT == Layout::ROWS ? BM + 4 : BM;
  constexpr int STAGE = BK * (A_ROW + BN);
  // A warp copies 4 rows × 8 values of k of A at once. A thread copies 16 bytes of B. If rows of B
  // are not aligned, it copies elements, and a warp's elements are neighbours: they go to 32 banks.
  constexpr int A_ROWS = THREADS / 8;
  constexpr int A_COPIES = BM / A_ROWS / CHUNKS;  // of A_ROWS rows per chunk, along all of BK
  constexpr int WIDTH = ALIGNED ? 4 : 1;
  constexpr int ACROSS = ALIGNED ? BN / 4 : 32;  // threads along a row of B
  constexpr int B_ROWS = THREADS / ACROSS;
  constexpr int B_COPIES = BK / B_ROWS / CHUNKS;
  static_assert(A_COPIES * CHUNKS * A_ROWS == BM && B_COPIES * CHUNKS * B_ROWS == BK,
                "each chunk copies equally much");

  const int t = threadIdx.x;
  const int warp = t / 32;
  const int lane = t % 32;
  const int warp_row = warp / WARPS_X * 4 * TM;
  const int warp_col = warp % WARPS_X * 8 * TN;
  const int steps = (depth + BK - 1) / BK;
  const int missing = steps * BK - depth;  // values of k that the first step lacks

  const int a_k = t % 8;
  const int a_row = t / 8;
  const int b_k = t / ACROSS;
  const int b_col = t % ACROSS * WIDTH;
  const int rows = M - origin.row - a_row;  // from this thread's first copy of A to the end
  const int cols = N - origin.col - b_col;
  // The next element of A and of B that this thread copies, as if the short step were whole.
  const Scalar* a_from =
      A_LAYOUT == Layout::PANELS
          ? A + static_cast<size_t>(origin.row / BM) * steps * BM * BK
          : A + static_cast<ptrdiff_t>(origin.row + a_row) * K + a_k - missing;
  const Scalar* b_from = B + static_cast<ptrdiff_t>(b_k - missing) * N + origin.col + b_col;
  const size_t a_pass = static_cast<size_t>(A_ROWS) * K;
  const size_t b_pass = static_cast<size_t>(B_ROWS) * N;

  // Requests a chunk's copies of the next step's tiles, with 0 for values of k below `zeros`.
  const auto copy = [&](int chunk, Scalar* stage, int zeros) {
    if constexpr (A_LAYOUT == Layout::PANELS) {  // contiguous, 16 bytes at a time
      constexpr int VECTORS = BM * BK / 4 / THREADS / CHUNKS;
#pragma unroll
      for (int i = 0; i < VECTORS; ++i) {
        const int at = ((chunk * VECTORS + i) * THREADS + t) * 4;
        copy_async<4 * sizeof(Scalar)>(stage + at, a_from + at);
      }
    } else {
      const int row = chunk * A_COPIES * A_ROWS;
      Scalar* const to = stage + a_k * A_ROW + a_row + row;
#pragma unroll
      for (int i = 0; i < A_COPIES * A_ROWS; i += A_ROWS) {
#pragma unroll
        for (int k = 0; k < BK; k += 8) {
          const bool filled = zeros > 0 && a_k + k < zeros;
          copy_async<sizeof(Scalar)>(to + k * A_ROW + i, a_from + k, row + i < rows && !filled);
        }
        a_from += a_pass;
      }
    }
    const int first = chunk * B_COPIES * B_ROWS + b_k;
    Scalar* const to = stage + BK * A_ROW + first * BN + b_col;
#pragma unroll
    for (int k = 0; k < B_COPIES * B_ROWS; k += B_ROWS) {
      const bool filled = zeros > 0 && first + k < zeros;
#pragma unroll
      for (int col = 0; col < BN; col += ACROSS * WIDTH) {
        copy_async<WIDTH * sizeof(Scalar)>(to + k * BN + col, b_from + col, col < cols && !filled);
      }
      b_from += b_pass;
    }
    constexpr bool PANELS = A_LAYOUT == Layout::PANELS;
    if (chunk == CHUNKS - 1) a_from += PANELS ? BM * BK : BK - BM * static_cast<ptrdiff_t>(K);
  };

#pragma unroll 1
  for (int step = 0; step < STAGES - 1; ++step) {
    if (step < steps) {
#pragma unroll 1
      for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        copy(chunk, stages + step * STAGE, step == 0 ? missing : 0);
      }
    }
    commit_copies();  // an empty group keeps the count
  }

  Fragments<Scalar, TM, TN> fragments[2];
  const Scalar* const a_first = stages + warp_row + lane / 8 * 4;
  const Scalar* const b_first = stages + BK * A_ROW + warp_col + lane % 8 * 4;
  const Scalar* a = a_first;
  const Scalar* b = b_first;
  int reading = 0;  // offset of the stage that is read, and of the stage that is written
  int writing = (STAGES - 1) * STAGE;

  await_copies<STAGES - 2>();
  __syncthreads();
  fragments[0].load(a, b);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const bool more = step + STAGES - 1 < steps;
#pragma unroll 1
    for (int chunk = 0; chunk < CHUNKS - 1; ++chunk) {
      if (more) copy(chunk, stages + writing, 0);
#pragma unroll
      for (int k = 0; k < CHUNK; ++k) {
        fragments[(k + 1) % 2].load(a + (k + 1) * A_ROW, b + (k + 1) * BN);
        fragments[k % 2].multiply_columns(sum);
      }
      a += CHUNK * A_ROW;
      b += CHUNK * BN;
    }
    if (more) copy(CHUNKS - 1, stages + writing, 0);
    commit_copies();
#pragma unroll
    for (int k = 0; k < CHUNK; ++k) {
      if (k < CHUNK - 1) {
        fragments[(k + 1) % 2].load(a + (k + 1) * A_ROW, b + (k + 1) * BN);
      } else {  // the last chunk loads the first operands of the next step
        await_copies<STAGES - 2>();
        __syncthreads();
        writing = reading;
        reading = reading == (STAGES - 1) * STAGE ? 0 : reading + STAGE;
        a = a_first + reading;
        b = b_first + reading;
        fragments[(k + 1) % 2].load(a, b);
      }
      fragments[k % 2].multiply_columns(sum);
    }
  }
}

// Computes a block's tile of C, or of a matrix like it, and stores it. `shared` is the dynamic
// shared memory. The sums are stored through it element by element: `register_banks` explains why.
template <Layout A_LAYOUT, bool ALIGNED, int BM, int BN, int BK, int TM, int TN, int STAGES,
          typename Scalar>
__device__ __forceinline__ void interleaved_tile(const Scalar* A, const Scalar* B, Scalar* C, int M,
                                                 int N, int K, int depth, Origin origin,
                                                 unsigned char* shared) {
  Scalar* const stages = reinterpret_cast<Scalar*>(shared);
  Scalar sum[TM][TN] = {};
  interleaved_product<A_LAYOUT, ALIGNED, BM, BN, BK, STAGES>(A, B, M, N, K, depth, origin, stages,
                                                             sum);

  __syncthreads();  // the stages become scratch
  const int warp = threadIdx.x / 32;
  const int row = origin.row + warp / (BN / (8 * TN)) * 4 * TM;
  const int col = origin.col + warp % (BN / (8 * TN)) * 8 * TN;
  store_tile(sum, stages + warp * (16 * 8 * TN + 4), C, row, col, M, N);
}
