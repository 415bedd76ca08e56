// fragments: a thread's operands of one k in registers, and the store of its sums. `interleaved`
// introduces the operands, and `register_banks` introduces the store.
//
// A warp of 4×8 threads computes a tile of 4·TM × 8·TN, as in `warptile`. A thread's rows and
// columns come as vectors of four elements, side by side with its neighbours'.

#pragma once

#include "vector.cuh"

// A thread's part of a column of A's tile and of a row of B's tile, for one k.
template <typename Scalar, int TM, int TN>
struct Fragments {
  Scalar a[TM];
  Scalar b[TN];

  // Loads from the thread's first vector of the column and of the row. The next vectors are 16
  // elements further in the column, and 32 in the row.
  __device__ __forceinline__ void load(const Scalar* a_row, const Scalar* b_row) {
#pragma unroll
    for (int i = 0; i < TM; i += 4) {
      const Vector<Scalar> vector = *reinterpret_cast<const Vector<Scalar>*>(a_row + 4 * i);
#pragma unroll
      for (int e = 0; e < 4; ++e) a[i + e] = vector.lanes[e];
    }
#pragma unroll
    for (int j = 0; j < TN; j += 4) {
      const Vector<Scalar> vector = *reinterpret_cast<const Vector<Scalar>*>(b_row + 8 * j);
#pragma unroll
      for (int e = 0; e < 4; ++e) b[j + e] = vector.lanes[e];
    }
  }

  // Multiplies columns FROM to TO - 1, in the order that `large_tile` explains.
  template <int FROM = 0, int TO = TN>
  __device__ __forceinline__ void multiply_columns(Scalar (&sum)[TM][TN]) const {
#pragma unroll
    for (int j = FROM; j < TO; ++j) {
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const int row = j % 2 ? TM - 1 - i : i;
        sum[row][j] += a[row] * b[j];
      }
    }
  }
};

// Stores a warp's tile of C, which starts at (row0, col0), through `scratch` in shared memory (16
// rows of 8·TN + 4 elements), so that 32 threads store 32 neighbouring elements.
//
// Elements go to shared memory one at a time: `register_banks` explains why. Every fourth row is
// shifted by one element, so that the four rows of threads write to 32 different banks.
template <typename Scalar, int TM, int TN>
__device__ __forceinline__ void store_tile(const Scalar (&sum)[TM][TN], Scalar* scratch, Scalar* C,
                                           int row0, int col0, int M, int N) {
  constexpr int COLS = 8 * TN;
  const int lane = threadIdx.x % 32;
  const int y = lane / 8;
  const int x = lane % 8;
#pragma unroll
  for (int i = 0; i < TM; i += 4) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        scratch[(4 * y + e) * COLS + y + j / 4 * 32 + 4 * x + j % 4] = sum[i + e][j];
      }
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      const int row = row0 + 4 * i + r;
#pragma unroll
      for (int c = 0; c < COLS; c += 32) {
        const int col = col0 + c + lane;
        if (row < M && col < N) {
          C[static_cast<size_t>(row) * N + col] = scratch[r * COLS + r / 4 + c + lane];
        }
      }
    }
    __syncwarp();
  }
}
