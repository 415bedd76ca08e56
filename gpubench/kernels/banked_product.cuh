// banked_product: the multiplying loop of `register_banks`, which says why it is as it is.

#pragma once

#include "async_copy.cuh"
#include "fragments.cuh"
#include "rasterization.cuh"

// Adds to `sum` what this thread has of A's rows and B's columns at `origin`, along `depth` values of
// k. A's rows are K apart, B's N; ALIGNED says that N is a multiple of 4. All threads of the block
// take part; no copy is under way afterwards.
template <bool ALIGNED, int BM, int BN, int BK, int STAGES, typename Scalar, int TM, int TN>
__device__ __forceinline__ void banked_product(const Scalar* A, const Scalar* B, int M, int N, int K,
                                               int depth, Origin origin, Scalar* stages,
                                               Scalar (&sum)[TM][TN]) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  constexpr int WARPS_X = BN / (8 * TN);
  constexpr int TURN = 8;  // values of k
  constexpr int TURNS = BK / TURN;
  constexpr int A_ROW = BM + 4;  // a four of padding: transposed writes meet 32 banks
  constexpr int STAGE = BK * (A_ROW + BN);
  // A copy of A by a warp takes 4 rows × 8 k; B goes by fours.
  constexpr int A_ROWS = THREADS / 8;
  constexpr int A_TURN = BM / A_ROWS / TURNS;  // times A_ROWS rows a turn, along all of BK
  constexpr int B_ROWS = THREADS / (BN / 4);
  constexpr int B_TURN = BK / B_ROWS / TURNS;
  static_assert(A_TURN * TURNS * A_ROWS == BM && B_TURN * TURNS * B_ROWS == BK,
                "each turn copies its share");

  const int t = threadIdx.x;
  const int warp = t / 32;
  const int lane = t % 32;
  const int warp_row = warp / WARPS_X * 4 * TM;
  const int warp_col = warp % WARPS_X * 8 * TN;
  const int steps = (depth + BK - 1) / BK;
  const int missing = steps * BK - depth;  // values of k that the first step lacks

  const int a_k = t % 8;
  const int a_row = t / 8;
  const int b_k = t / (BN / 4);
  const int b_col = t % (BN / 4) * 4;
  const bool b_inside = origin.col + b_col < N;
  // The next element of A, and of B, that this thread copies: as if the ragged step were whole.
  const Scalar* a_from = A + static_cast<ptrdiff_t>(origin.row + a_row) * K + a_k - missing;
  const Scalar* b_from = B + static_cast<ptrdiff_t>(b_k - missing) * N + origin.col + b_col;
  const size_t a_pass = static_cast<size_t>(A_ROWS) * K;
  const size_t b_pass = static_cast<size_t>(B_ROWS) * N;

  // Requests the share `turn` of a step's tiles; k below `zeros` are zeros.
  const auto copy = [&](int turn, Scalar* stage, int zeros) {
#pragma unroll
    for (int i = 0; i < A_TURN; ++i) {
      const int row = (turn * A_TURN + i) * A_ROWS + a_row;
      if (origin.row + row < M) {
#pragma unroll
        for (int k = 0; k < BK; k += 8) {
          Scalar* const to = stage + (a_k + k) * A_ROW + row;
          if (zeros > 0 && a_k + k < zeros) {
            *to = 0;
          } else {
            copy_async<sizeof(Scalar)>(to, a_from + i * a_pass + k);
          }
        }
      }
    }
    a_from += A_TURN * a_pass;
#pragma unroll
    for (int i = 0; i < B_TURN; ++i) {
      const int k = (turn * B_TURN + i) * B_ROWS + b_k;
      Scalar* const to = stage + BK * A_ROW + k * BN + b_col;
      const Scalar* const from = b_from + i * b_pass;
      if (zeros > 0 && k < zeros) {
        *reinterpret_cast<Vector<Scalar>*>(to) = {};
      } else if (ALIGNED) {
        if (b_inside) copy_async<4 * sizeof(Scalar)>(to, from);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (origin.col + b_col + e < N) copy_async<sizeof(Scalar)>(to + e, from + e);
        }
      }
    }
    b_from += B_TURN * b_pass;
    if (turn == TURNS - 1) a_from += BK - BM * static_cast<ptrdiff_t>(K);
  };

#pragma unroll 1
  for (int step = 0; step < STAGES - 1; ++step) {
    if (step < steps) {
#pragma unroll 1
      for (int turn = 0; turn < TURNS; ++turn) {
        copy(turn, stages + step * STAGE, step == 0 ? missing : 0);
      }
    }
    commit_copies();  // an empty group keeps the count
  }

  Fragments<Scalar, TM, TN> fragments[2];
  const Scalar* const a_first = stages + warp_row + lane / 8 * 4;
  const Scalar* const b_first = stages + BK * A_ROW + warp_col + lane % 8 * 4;
  const Scalar* a = a_first;
  const Scalar* b = b_first;
  int reading = 0;  // offsets of stages
  int writing = (STAGES - 1) * STAGE;

  await_copies<STAGES - 2>();
  __syncthreads();
  fragments[0].load(a, b);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const bool more = step + STAGES - 1 < steps;
#pragma unroll 1
    for (int turn = 0; turn < TURNS - 1; ++turn) {
      if (more) copy(turn, stages + writing, 0);
#pragma unroll
      for (int k = 0; k < TURN; ++k) {
        fragments[(k + 1) % 2].load(a + (k + 1) * A_ROW, b + (k + 1) * BN);
        fragments[k % 2].multiply_into(sum);
      }
      a += TURN * A_ROW;
      b += TURN * BN;
    }
    if (more) copy(TURNS - 1, stages + writing, 0);
    commit_copies();
#pragma unroll
    for (int k = 0; k < TURN; ++k) {
      if (k < TURN - 1) {
        fragments[(k + 1) % 2].load(a + (k + 1) * A_ROW, b + (k + 1) * BN);
      } else {  // the last turn ends with the next step's first operands
        await_copies<STAGES - 2>();
        __syncthreads();
        writing = reading;
        reading = reading == (STAGES - 1) * STAGE ? 0 : reading + STAGE;
        a = a_first + reading;
        b = b_first + reading;
        fragments[(k + 1) % 2].load(a, b);
      }
      fragments[k % 2].multiply_into(sum);
    }
  }
}

// A block's tile of C from beginning to end, in dynamic shared memory.
template <bool ALIGNED, int BM, int BN, int BK, int TM, int TN, int STAGES, typename Scalar>
__device__ __forceinline__ void banked_tile(const Scalar* A, const Scalar* B, Scalar* C, int M,
                                            int N, int K, int depth, Origin origin,
                                            unsigned char* shared) {
  Scalar* const stages = reinterpret_cast<Scalar*>(shared);  // each: BK rows of A, BK rows of B
  Scalar sum[TM][TN] = {};
  banked_product<ALIGNED, BM, BN, BK, STAGES>(A, B, M, N, K, depth, origin, stages, sum);

  __syncthreads();  // the stages become scratch
  const int warp = threadIdx.x / 32;
  const int row = origin.row + warp / (BN / (8 * TN)) * 4 * TM;
  const int col = origin.col + warp % (BN / (8 * TN)) * 8 * TN;
  store_tile(sum, stages + warp * (16 * 8 * TN + 4), C, row, col, M, N);
}
