// tf32: products in TF32, with columns of B in registers. `wgmma_tf32` introduces them.
//
// In shared memory `wgmma` takes 4-byte operands along k only, but a row-major B lies along n. So A
// and B change places: Cᵀ = Bᵀ·Aᵀ. The operand of 64 rows is 64 columns of B. A warpgroup loads it
// into registers, and each thread may load them from any address. The operand of N columns is N
// rows of A, which lie along k. Nothing is transposed beforehand.
//
// The TMA rounds to TF32 (to nearest, ties to even). The tensor cores would cut off the bits.
//
// One instruction takes 8 values of k. In the 64×8 register operand, thread t (g = t % 32 / 4) has
// rows g and g + 8 of its warp's 16 rows, at k = t % 4 and k = t % 4 + 4. Any column of B may stand
// for any row. Rows g and g + 8 are neighbouring columns, so that one load of 8 bytes brings both.

#pragma once

#include "../cluster/cluster_gemm.cuh"

constexpr int TF32_WIDTH = 32;  // elements in a row of 128 bytes: a step's values of k

// The first of thread t's two columns among the 64 columns of its warpgroup. A warp has two groups
// of 8 columns that are 16 apart, and so stores whole sectors of 32 bytes.
__host__ __device__ constexpr int tf32_column(int t) {
  const int warp = t / 32, g = t % 32 / 4;
  return warp / 2 * 32 + g % 2 * 16 + warp % 2 * 8 + g / 4 * 4 + g / 2 % 2 * 2;
}

// The swizzled offset of thread t's two columns at k = t % 4 in its warpgroup's parts of B. The 16
// threads that load at once use all banks. `tf32_address` goes on to k = 4i + t % 4.
__host__ __device__ constexpr int tf32_offset(int t) {
  const int column = tf32_column(t), k = t % 4;
  return (column / TF32_WIDTH * TF32_WIDTH + k) * ROW_BYTES +
         swizzle(k, column % TF32_WIDTH / 4) * 16 + column % 4 * 4;
}
__host__ __device__ constexpr unsigned tf32_address(unsigned first, int i) {
  return (first ^ i % 2 * 64) + i * 4 * ROW_BYTES;
}

// A thread's values of B for LOADS × 4 values of k, two columns each.
template <int LOADS>
struct Tf32Columns {
  unsigned bits[LOADS / 2][4];

  // `first` is the address of k = t % 4 in the stage. `begin` is the number of the first load.
  __device__ __forceinline__ void load(unsigned first, int begin = 0) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                   : "=r"(bits[i / 2][i % 2 * 2]), "=r"(bits[i / 2][i % 2 * 2 + 1])
                   : "r"(tf32_address(first, begin + i))
                   : "memory");
    }
  }
};

// Starts to multiply 64 columns of B, in registers (`a`), by N rows of A (`b`), for 8 values of k.
// For each j, thread t gets its two columns of row 8j + 2(t % 4) in sum[4j] and sum[4j + 2], and of
// the next row in sum[4j + 1] and sum[4j + 3].
template <int N>
__device__ __forceinline__ void
multiply_async(float (&sum)[N / 2], const unsigned (&a)[4], unsigned long long b, bool add) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256, "a width of the instruction");
  WGMMA_WIDTHS(WGMMA_TF32)
}

// Multiplies all values of k of the columns. `a` is an address in shared memory.
template <int N, int LOADS>
__device__ __forceinline__ void
multiply_columns(float (&sum)[N / 2], const Tf32Columns<LOADS>& columns, unsigned a, bool add) {
#pragma unroll
  for (int i = 0; i < LOADS; i += 2) {
    multiply_async<N>(sum, columns.bits[i / 2], part_of_a(a, i / 2), add || i > 0);
  }
}

// Multiplies a warpgroup's steps of a tile. While one set of columns is multiplied, the other set
// is loaded. The first step's columns are in `even` already. If there are `more` tiles, the last
// step loads the next tile's first columns. `a` and `b` are this thread's addresses in stage 0.
template <int BM, int STAGE, int BLOCKS, int STAGES, int LOADS>
__device__ __forceinline__ void
multiply_tf32_steps(float (&sum)[BM / 2], Ring<STAGES>& ring, Slot<STAGES>& slot, unsigned a,
                    unsigned b, Tf32Columns<LOADS>& even, Tf32Columns<LOADS>& odd, int steps,
                    bool more, int first_block = 0) {
  int previous = 0;
  const auto multiply_step = [&](int step, const auto& columns, auto& next) {
    wgmma_fence();
    multiply_columns<BM>(sum, columns, a + slot.stage * STAGE, step > 0);
    commit_multiplications();
    await_multiplications<1>();
    if (step > 0) free_stage<BLOCKS>(ring.freed[previous], first_block);
    previous = slot.stage;
    slot.advance();
    // After the very last step, the values loaded here are not used.
    if (more || step + 1 < steps) ring.filled[slot.stage].wait(slot.parity);
    next.load(b + slot.stage * STAGE);
  };
#pragma unroll 1
  for (int step = 0; step < steps; step += 2) {
    multiply_step(step, even, odd);
    if (step + 1 < steps) multiply_step(step + 1, odd, even);
  }
  await_multiplications<0>();
  free_stage<BLOCKS>(ring.freed[previous], first_block);
}

// Stores the sums of N rows × 64 columns at (row0, col0). If the number of columns is even, both
// columns of a thread are inside C or both are outside.
template <int N>
__device__ __forceinline__ void
store_columns(const float (&sum)[N / 2], float* C, int row0, int col0, int rows, int cols) {
  const int row = row0 + threadIdx.x % 4 * 2;
  const int col = col0 + tf32_column(threadIdx.x % 128);
  if (col >= cols) return;
  float* to = C + static_cast<size_t>(row) * cols + col;
#pragma unroll
  for (int j = 0; j < N / 8; ++j, to += 8 * static_cast<size_t>(cols)) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (row + 8 * j + i >= rows) continue;
      if (cols % 2 == 0) {
        *reinterpret_cast<float2*>(to + i * cols) = make_float2(sum[4 * j + i], sum[4 * j + 2 + i]);
      } else {
        to[i * cols] = sum[4 * j + i];
        if (col + 1 < cols) to[i * cols + 1] = sum[4 * j + 2 + i];
      }
    }
  }
}
