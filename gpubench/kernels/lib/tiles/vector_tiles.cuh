// vector_tiles: tiles of A and B in shared memory as vectors of 16 bytes, with A's tile transposed.
// `vectorized` introduces them, and `warptile` and `pipelined` use them too.

#pragma once

#include "vector.cuh"

// Copies the BM×BK tile of A at (row0, k0) and the BK×BN tile of B at (k0, col0) to shared memory,
// with zeros for elements outside the matrices. A row of `a_tile` holds one k: BM elements and a
// vector of padding. `a_aligned` and `b_aligned`: rows start at multiples of 16 bytes.
template <int THREADS, typename Scalar, int BK, int A_ROW, int B_ROW>
__device__ __forceinline__ void load_tiles(const Scalar* A, const Scalar* B, int M, int N, int K,
                                           int row0, int col0, int k0, bool a_aligned,
                                           bool b_aligned,
                                           Vector<Scalar> (&a_tile)[BK][A_ROW],
                                           Vector<Scalar> (&b_tile)[BK][B_ROW]) {
  constexpr int WIDTH = Vector<Scalar>::SIZE;
  constexpr int BM = (A_ROW - 1) * WIDTH;
  for (int i = threadIdx.x; i < BM * BK / WIDTH; i += THREADS) {
    const int row = i / (BK / WIDTH);
    const int k = i % (BK / WIDTH) * WIDTH;
    Vector<Scalar> vector = {};
    if (row0 + row < M) {
      vector = load_vector(A + static_cast<size_t>(row0 + row) * K, k0 + k, K, a_aligned);
    }
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) a_tile[k + e][row / WIDTH].lanes[row % WIDTH] = vector.lanes[e];
  }
  for (int i = threadIdx.x; i < BK * B_ROW; i += THREADS) {
    const int k = i / B_ROW;
    const int col = i % B_ROW;
    Vector<Scalar> vector = {};
    if (k0 + k < K) {
      vector = load_vector(B + static_cast<size_t>(k0 + k) * N, col0 + col * WIDTH, N, b_aligned);
    }
    b_tile[k][col] = vector;
  }
}

// Adds the outer product of TM elements of a column of A and TN of a row of B, in registers.
template <typename Scalar, int A_VECTORS, int B_VECTORS, int TM, int TN>
__device__ __forceinline__ void add_outer_product(const Vector<Scalar> (&a)[A_VECTORS],
                                                  const Vector<Scalar> (&b)[B_VECTORS],
                                                  Scalar (&sum)[TM][TN]) {
  constexpr int WIDTH = Vector<Scalar>::SIZE;
  if constexpr (TM > TN) {  // `large_tile` explains this order
#pragma unroll
    for (int j = 0; j < TN; ++j) {
#pragma unroll
      for (int down = 0; down < TM; ++down) {
        const int i = j % 2 ? TM - 1 - down : down;
        sum[i][j] += a[i / WIDTH].lanes[i % WIDTH] * b[j / WIDTH].lanes[j % WIDTH];
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        sum[i][j] += a[i / WIDTH].lanes[i % WIDTH] * b[j / WIDTH].lanes[j % WIDTH];
      }
    }
  }
}

// Adds the outer product of one k, with operands in shared memory. A thread's vectors of the column
// lie Y_STEP vectors apart, and its vectors of the row lie X_STEP vectors apart.
template <int Y_STEP, int X_STEP, typename Scalar, int TM, int TN>
__device__ __forceinline__ void add_outer_product(const Vector<Scalar>* a_column,
                                                  const Vector<Scalar>* b_row,
                                                  Scalar (&sum)[TM][TN]) {
  constexpr int WIDTH = Vector<Scalar>::SIZE;
  Vector<Scalar> a[TM / WIDTH];
  Vector<Scalar> b[TN / WIDTH];
#pragma unroll
  for (int i = 0; i < TM / WIDTH; ++i) a[i] = a_column[i * Y_STEP];
#pragma unroll
  for (int j = 0; j < TN / WIDTH; ++j) b[j] = b_row[j * X_STEP];
  add_outer_product(a, b, sum);
}

// Stores a thread's sums to C. Its first vectors are at (row0, col0). The next vectors are Y_STEP
// vectors below and X_STEP vectors to the right.
template <int Y_STEP, int X_STEP, typename Scalar, int TM, int TN>
__device__ __forceinline__ void store_sums(const Scalar (&sum)[TM][TN], Scalar* C, int row0,
                                           int col0, int M, int N, bool aligned) {
  constexpr int WIDTH = Vector<Scalar>::SIZE;
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = row0 + i / WIDTH * Y_STEP * WIDTH + i % WIDTH;
    if (row >= M) break;
#pragma unroll
    for (int j = 0; j < TN / WIDTH; ++j) {
      Vector<Scalar> vector;
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) vector.lanes[e] = sum[i][j * WIDTH + e];
      store_vector(vector, C + static_cast<size_t>(row) * N, col0 + j * X_STEP * WIDTH, N,
                   aligned);
    }
  }
}
