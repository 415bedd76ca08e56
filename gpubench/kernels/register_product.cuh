// register_product: what the fastest float32 kernels share. A warp of 4×8 threads computes a tile
// of 4·TM × 8·TN; a thread's rows and columns come in fours, neighbours take neighbouring fours.

#pragma once

template <typename Scalar>
struct alignas(16) Four {
  Scalar of[4];
};

// The column of A's tile and the row of B's that one k needs, as a thread holds them.
template <typename Scalar, int TM, int TN>
struct Fragments {
  Scalar a[TM];
  Scalar b[TN];

  // From the thread's first four of rows and of columns; the next ones are 16 and 32 on.
  __device__ __forceinline__ void load(const Scalar* a_row, const Scalar* b_row) {
#pragma unroll
    for (int i = 0; i < TM; i += 4) {
      const Four<Scalar> four = *reinterpret_cast<const Four<Scalar>*>(a_row + 4 * i);
#pragma unroll
      for (int e = 0; e < 4; ++e) a[i + e] = four.of[e];
    }
#pragma unroll
    for (int j = 0; j < TN; j += 4) {
      const Four<Scalar> four = *reinterpret_cast<const Four<Scalar>*>(b_row + 8 * j);
#pragma unroll
      for (int e = 0; e < 4; ++e) b[j + e] = four.of[e];
    }
  }

  // Down one column of the tile and up the next: each multiply-add shares an operand with the one
  // before, which the register file then need not deliver again.
  __device__ __forceinline__ void multiply_into(Scalar (&sum)[TM][TN]) const {
    multiply_columns<0, TN>(sum);
  }

  // Columns FROM to TO - 1 alone.
  template <int FROM, int TO>
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

// Writes a warp's tile of C, whose first row and column are `row0` and `col0`, through `scratch` in
// shared memory (16 rows of 8·TN + 4), so that 32 threads store 32 neighbours.
//
// Elements go to shared memory one at a time. Storing fours to C at once would force the sums into
// groups of four adjacent registers, and the main loop would pay for it with register bank
// conflicts. Every fourth row is shifted by one, so that the four rows of threads meet 32 banks.
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

// Where block `index` of a one-dimensional grid works. Blocks that run at the same time shall share
// rows and columns in the L2 cache, so they go down bands of 8 tiles, not along whole rows.
struct Place {
  int row;
  int col;
};

template <int BM, int BN>
__device__ __forceinline__ Place place_in_bands(int index, int M, int N) {
  constexpr int BAND = 8;
  const int across = (N + BN - 1) / BN;
  const int down = (M + BM - 1) / BM;
  const int first = index / (BAND * across) * BAND;
  const int height = min(BAND, down - first);
  const int within = index % (BAND * across);
  return {(first + within % height) * BM, within / height * BN};
}

// C as the sum of SPLITS matrices that lie one behind the other, always added in the same order.
template <int SPLITS, typename Scalar>
__device__ __forceinline__ void sum_parts(const Scalar* parts, Scalar* C, size_t count) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
       i += stride) {
    Scalar total = parts[i];
#pragma unroll
    for (int split = 1; split < SPLITS; ++split) total += parts[split * count + i];
    C[i] = total;
  }
}
