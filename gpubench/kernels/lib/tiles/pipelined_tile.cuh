// pipelined_tile: the work of one block. `pipelined` introduces it, and `large_tile` uses it too.

#pragma once

#include "../tma/async_copy.cuh"
#include "vector_tiles.cuh"

// Computes the tile of C that starts at (row0, col0). `shared` is the dynamic shared memory.
template <int BM, int BN, int BK, int TM, int TN, int STAGES, typename Scalar>
__device__ __forceinline__ void pipelined_tile(const Scalar* A, const Scalar* B, Scalar* C, int M,
                                               int N, int K, int row0, int col0,
                                               unsigned char* shared) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  constexpr int WIDTH = Vector<Scalar>::SIZE;
  constexpr int WARP_ROWS = 4;  // of threads
  constexpr int WARP_COLS = 8;
  constexpr int WARPS_X = BN / (WARP_COLS * TN);
  constexpr int A_ROW = BM / WIDTH + 1;  // vectors in a row of k, one of them padding
  constexpr int B_ROW = BN / WIDTH;
  // STAGES tiles of A (BK × A_ROW vectors each), then STAGES tiles of B (BK × B_ROW).
  Vector<Scalar>* const a_stages = reinterpret_cast<Vector<Scalar>*>(shared);
  Vector<Scalar>* const b_stages = a_stages + STAGES * BK * A_ROW;

  const int t = threadIdx.x;
  const int warp = t / 32;
  const int lane = t % 32;
  const int y = warp / WARPS_X * (WARP_ROWS * TM / WIDTH) + lane / WARP_COLS;
  const int x = warp % WARPS_X * (WARP_COLS * TN / WIDTH) + lane % WARP_COLS;
  const bool b_aligned = N % WIDTH == 0;
  const int steps = (K + BK - 1) / BK;

  // Requests the tiles of one step. Elements outside the matrices are 0.
  const auto request = [&](int step) {
    Scalar* const a = reinterpret_cast<Scalar*>(a_stages + step % STAGES * BK * A_ROW);
    Vector<Scalar>* const b = b_stages + step % STAGES * BK * B_ROW;
    const int k0 = step * BK;
#pragma unroll
    for (int i = t; i < BM * BK; i += THREADS) {
      const int k = i % 8 + i / (8 * BM) * 8;
      const int row = i / 8 % BM;
      const bool inside = row0 + row < M && k < K - k0;
      copy_async<sizeof(Scalar)>(a + k * A_ROW * WIDTH + row,
                                 A + static_cast<size_t>(row0 + row) * K + k0 + k, inside);
    }
#pragma unroll
    for (int i = t; i < BK * B_ROW; i += THREADS) {
      const int k = i / B_ROW;
      const int col = col0 + i % B_ROW * WIDTH;
      const Scalar* const from = B + static_cast<size_t>(k0 + k) * N + col;
      const int left = k < K - k0 ? N - col : 0;  // columns from here on
      if (b_aligned) {
        copy_async<16>(&b[i], from, left > 0);
      } else {
        for (int e = 0; e < WIDTH; ++e) {
          copy_async<sizeof(Scalar)>(&b[i].lanes[e], from + e, e < left);
        }
      }
    }
  };

#pragma unroll
  for (int step = 0; step < STAGES - 1; ++step) {
    if (step < steps) request(step);
    commit_copies();  // an empty group keeps the count
  }

  Scalar sum[TM][TN] = {};
  for (int step = 0; step < steps; ++step) {
    await_copies<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < steps) request(step + STAGES - 1);
    commit_copies();
    const Vector<Scalar>* const a_tile = a_stages + step % STAGES * BK * A_ROW + y;
    const Vector<Scalar>* const b_tile = b_stages + step % STAGES * BK * B_ROW + x;
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      // In a function, these loads would take six more registers, and 4 % more time at 1024.
      Vector<Scalar> a[TM / WIDTH];
      Vector<Scalar> b[TN / WIDTH];
#pragma unroll
      for (int i = 0; i < TM / WIDTH; ++i) a[i] = a_tile[k * A_ROW + i * WARP_ROWS];
#pragma unroll
      for (int j = 0; j < TN / WIDTH; ++j) b[j] = b_tile[k * B_ROW + j * WARP_COLS];
      add_outer_product(a, b, sum);
    }
  }
  // With `store_sums` here, the loop above would get other registers and take 2 to 3 % more time.
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = row0 + (y + i / WIDTH * WARP_ROWS) * WIDTH + i % WIDTH;
    if (row >= M) continue;
    Scalar* const c = C + static_cast<size_t>(row) * N;
#pragma unroll
    for (int j = 0; j < TN / WIDTH; ++j) {
      const int col = col0 + (x + j * WARP_COLS) * WIDTH;
      Vector<Scalar> vector;
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) vector.lanes[e] = sum[i][j * WIDTH + e];
      store_vector(vector, c, col, N, b_aligned);
    }
  }
}
