// pipelined: the next tiles are on their way from global memory while this one is computed.
//
// Against `warptile`: shared memory holds STAGES tiles of A and B. `cp.async` copies from global to
// shared memory without passing through registers and without anybody waiting for it: a thread
// requests the tile for STAGES − 1 steps ahead, computes the present one, and only then waits until
// the oldest request has arrived. One barrier a step instead of two: it says both that the new tile
// is there for all and that the old one is free.
//
// Access: `cp.async` takes 4, 8 or 16 bytes. A is transposed on the way, so it goes by elements: a
// warp takes 4 rows × 8 elements along k, whole 32-byte sectors of global memory and, with the
// padding, 32 different banks. B goes by 16 bytes where its rows are aligned.
//
// What remains is the multiplying loop itself: where the compiler puts the loads from shared
// memory, and in which register banks it keeps the operands. `register_banks` is about that.

#include "../async_copy.cuh"
#include "../vector_tiles.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
pipelined(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  constexpr int WIDTH = Vector<Scalar>::SIZE;
  constexpr int WARP_ROWS = 4;  // of threads
  constexpr int WARP_COLS = 8;
  constexpr int WARPS_X = BN / (WARP_COLS * TN);
  constexpr int A_ROW = BM / WIDTH + 1;  // vectors in a row of k, one of them padding
  constexpr int B_ROW = BN / WIDTH;
  extern __shared__ __align__(16) unsigned char shared[];
  // STAGES tiles of A (BK × A_ROW vectors each), then STAGES tiles of B (BK × B_ROW).
  Vector<Scalar>* const a_stages = reinterpret_cast<Vector<Scalar>*>(shared);
  Vector<Scalar>* const b_stages = a_stages + STAGES * BK * A_ROW;

  const int t = threadIdx.x;
  const int row0 = blockIdx.y * BM;
  const int col0 = blockIdx.x * BN;
  const int warp = t / 32;
  const int lane = t % 32;
  const int y = warp / WARPS_X * (WARP_ROWS * TM / WIDTH) + lane / WARP_COLS;
  const int x = warp % WARPS_X * (WARP_COLS * TN / WIDTH) + lane % WARP_COLS;
  const bool b_aligned = N % WIDTH == 0;
  const int steps = (K + BK - 1) / BK;

  // Requests the tiles of one step; outside the matrices they are 0.
  const auto request = [&](int step) {
    Scalar* const a = reinterpret_cast<Scalar*>(a_stages + step % STAGES * BK * A_ROW);
    Vector<Scalar>* const b = b_stages + step % STAGES * BK * B_ROW;
    const int k0 = step * BK;
#pragma unroll
    for (int i = t; i < BM * BK; i += THREADS) {
      const int k = i % 8 + i / (8 * BM) * 8;
      const int row = i / 8 % BM;
      Scalar* const to = a + k * A_ROW * WIDTH + row;
      if (row0 + row < M && k < K - k0) {
        copy_async<sizeof(Scalar)>(to, A + static_cast<size_t>(row0 + row) * K + k0 + k);
      } else {
        *to = 0;
      }
    }
#pragma unroll
    for (int i = t; i < BK * B_ROW; i += THREADS) {
      const int k = i / B_ROW;
      const int col = col0 + i % B_ROW * WIDTH;
      const Scalar* const from = B + static_cast<size_t>(k0 + k) * N + col;
      if (k >= K - k0 || col >= N) {
        b[i] = Vector<Scalar>{};
      } else if (b_aligned) {
        copy_async<16>(&b[i], from);
      } else {
        for (int e = 0; e < WIDTH; ++e) {
          if (col + e < N) {
            copy_async<sizeof(Scalar)>(&b[i].lanes[e], from + e);
          } else {
            b[i].lanes[e] = 0;
          }
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
      add_outer_product<WARP_ROWS, WARP_COLS>(a_tile + k * A_ROW, b_tile + k * B_ROW, sum);
    }
  }
  store_sums<WARP_ROWS, WARP_COLS>(sum, C, row0 + y * WIDTH, col0 + x * WIDTH, M, N, b_aligned);
}
