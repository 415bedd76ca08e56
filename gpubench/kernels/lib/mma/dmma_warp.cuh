// dmma_warp: a warp's part of a tile in float64: the places of its elements in shared memory, its
// operands in registers, and its sums. `dmma` introduces and explains them.

#pragma once

#include "tensor_cores.cuh"

constexpr int DMMA_WIDTH = 16;  // elements in a row of 128 bytes

// Below, g = lane / 4 and t = lane % 4, as in PTX's description of the instruction.

// The number, from 0 to 7, of the row of A that the instruction has in its column `column`.
__host__ __device__ constexpr int dmma_row(int column) { return column % 2 * 4 + column / 2; }

// The swizzled offset in bytes of a lane's elements of A at k = 2t and 2t + 1, in its row of eight
// rows. `dmma_a_address` goes from there to k = 8i + 2t.
__host__ __device__ constexpr int dmma_a_offset(int lane) {
  const int row = dmma_row(lane / 4);
  return row * ROW_BYTES + swizzle(row, lane % 4) * 16;
}
__host__ __device__ constexpr unsigned dmma_a_address(unsigned first, int i) {
  return first ^ i * 64;
}

// The offset of a lane's elements of B in its columns 2g and 2g + 1, out of 16, at k = 2t.
// `dmma_b_address` goes from there to k = 2t + i % 2 + i / 2 * 8.
__host__ __device__ constexpr int dmma_b_offset(int lane) {
  const int k = lane % 4 * 2;
  return k * ROW_BYTES + swizzle(k, lane / 4) * 16;
}
__host__ __device__ constexpr unsigned dmma_b_address(unsigned first, int i) {
  return (first ^ i % 2 * 16) + (i % 2 + i / 2 * 8) * ROW_BYTES;
}

__device__ __forceinline__ double2 load_pair(unsigned at) {
  double2 pair;
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];"
               : "=d"(pair.x), "=d"(pair.y)
               : "r"(at)
               : "memory");
  return pair;
}

__device__ __forceinline__ void store_shared(unsigned at, double2 pair) {
  PTX("st.shared.v2.f64 [%0], {%1, %2};", "r"(at), "d"(pair.x), "d"(pair.y));
}

// Adds 16 columns of B times 8 rows of A. A lane has the columns 2g and 2g + 1 of row t in sum[0]
// and sum[2], and of row t + 4 in sum[1] and sum[3].
__device__ __forceinline__ void multiply(double (&sum)[4], const double2 (&b)[4],
                                         const double2 (&a)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
      : "d"(b[0].x), "d"(b[0].y), "d"(b[1].x), "d"(b[1].y), "d"(b[2].x), "d"(b[2].y), "d"(b[3].x),
        "d"(b[3].y), "d"(a[0].x), "d"(a[0].y), "d"(a[1].x), "d"(a[1].y));
}

// The operands of a warp that multiplies ROWS·8 rows of A by COLUMNS·16 columns of B: all its rows
// for 16 values of k, and its columns for this pass and the next one. A stage has A_ROWS rows of A.
template <int ROWS, int COLUMNS, int A_ROWS, int BK, int STAGE>
struct DmmaOperands {
  static constexpr int PASSES = BK / 16 * COLUMNS;  // of a step
  static_assert(PASSES % 2 == 0, "a step begins with the same set of columns");
  unsigned a_at;  // a lane's first addresses in stage 0
  unsigned b_at;
  double2 a[ROWS][2];
  double2 b[2][4];

  __device__ __forceinline__ void load_a(int stage, int k16, int i) {
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      a[i][u] =
          load_pair(dmma_a_address(a_at + stage * STAGE, u) + (k16 * A_ROWS + i * 8) * ROW_BYTES);
    }
  }
  __device__ __forceinline__ void load_b(int set, int stage, int pass) {
    const int part = pass % COLUMNS, k16 = pass / COLUMNS;
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      b[set][u] =
          load_pair(dmma_b_address(b_at + stage * STAGE, u) + (part * BK + k16 * 16) * ROW_BYTES);
    }
  }
  // Loads the first operands of a step in `stage`.
  __device__ __forceinline__ void load_first(int stage) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) load_a(stage, 0, i);
    load_b(0, stage, 0);
  }
  // Multiplies a tile's steps. The last pass of a step loads the first operands of the next step,
  // also of the next tile if there are `more`. Blocks from `first_block` on free their stages.
  template <int BLOCKS, int STAGES>
  __device__ __forceinline__ void
  multiply_steps(double (&sum)[COLUMNS][ROWS][4], Ring<STAGES>& ring, Slot<STAGES>& slot, int steps,
                 bool more, int first_block = 0) {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const int stage = slot.stage;
      slot.advance();
#pragma unroll
      for (int pass = 0; pass < PASSES; ++pass) {
        const bool last_pass = pass + 1 == PASSES;
        // After the very last step, the values loaded next are not used.
        if (last_pass && (more || step + 1 < steps)) ring.filled[slot.stage].wait(slot.parity);
        const int next_stage = last_pass ? slot.stage : stage;
        const int next_pass = last_pass ? 0 : pass + 1;
        load_b((pass + 1) % 2, next_stage, next_pass);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          multiply(sum[pass % COLUMNS][i], b[pass % 2], a[i]);
          if (next_pass % COLUMNS == 0) load_a(next_stage, next_pass / COLUMNS, i);
        }
      }
      __syncwarp();
      free_stage<BLOCKS, 32>(ring.freed[stage], first_block);
    }
  }
};

// Calls `store` with row, column and value of each pair of a lane's sums of a tile at (row, col).
template <int ROWS, int COLUMNS, typename Store>
__device__ __forceinline__ void
for_each_pair(const double (&sum)[COLUMNS][ROWS][4], int row, int col, Store store) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int part = 0; part < COLUMNS; ++part) {
        store(row + lane % 4 + i * 8 + half * 4, col + lane / 4 * 2 + part * 16,
              make_double2(sum[part][i][half], sum[part][i][2 + half]));
      }
    }
  }
}

// Stores a pair of results, if it is inside C. N is even.
__device__ __forceinline__ void store_pair(double* C, int row, int col, int M, int N,
                                           double2 pair) {
  if (row < M && col < N) {
    *reinterpret_cast<double2*>(C + static_cast<size_t>(row) * N + col) = pair;
  }
}
