// padded_rows: operands whose rows are no multiple of 16 bytes, copied into rows that the TMA takes.
// `wgmma_any_rows` introduces them.

#pragma once

#include "tma.cuh"

constexpr int PART_WORDS = 8;  // that a lane of a warp copies, side by side with the other lanes
constexpr int PART_BYTES = PART_WORDS * 32 * 4;
constexpr int PADDED_TO = 128;  // bytes: a line of the L2 cache

__host__ __device__ constexpr int padded_bytes(int row_bytes) {
  return (row_bytes + PADDED_TO - 1) / PADDED_TO * PADDED_TO;
}
__host__ __device__ constexpr int parts_of_row(int row_bytes) {
  return (row_bytes + PART_BYTES - 1) / PART_BYTES;
}

// Word number `index` of an array. The last word may end behind the array.
__device__ __forceinline__ unsigned word_of(const void* array, size_t index, size_t bytes) {
  if (index * 4 + 4 <= bytes) return static_cast<const unsigned*>(array)[index];
  unsigned word = 0;
  for (size_t at = index * 4; at < bytes; ++at) {
    word |= static_cast<unsigned>(static_cast<const unsigned char*>(array)[at]) << at % 4 * 8;
  }
  return word;
}

// Copies a part of a row by a warp. A row begins at any byte: a word that is stored lies in two
// words that are loaded. What lies behind a row's last byte is of no use.
__device__ __forceinline__ void
copy_part(const void* from, void* to, int rows, int row_bytes, int number) {
  const int row = number / parts_of_row(row_bytes);
  if (row >= rows) return;
  const int begin = number % parts_of_row(row_bytes) * PART_BYTES + threadIdx.x % 32 * 4;
  const size_t bytes = static_cast<size_t>(rows) * row_bytes;
  const size_t first = static_cast<size_t>(row) * row_bytes + begin;
  const int shift = first % 4 * 8;
  unsigned words[PART_WORDS];
#pragma unroll
  for (int i = 0; i < PART_WORDS; ++i) {
    if (begin + i * 128 >= row_bytes) break;
    words[i] = word_of(from, first / 4 + i * 32, bytes) >> shift;
    if (shift) words[i] |= word_of(from, first / 4 + i * 32 + 1, bytes) << (32 - shift);
  }
  unsigned char* const at = static_cast<unsigned char*>(to) +
                            static_cast<size_t>(row) * padded_bytes(row_bytes) + begin;
#pragma unroll
  for (int i = 0; i < PART_WORDS; ++i) {
    if (begin + i * 128 >= row_bytes) break;
    *reinterpret_cast<unsigned*>(at + i * 128) = words[i];
  }
}

// Launched with a warp for each part of a row of A, if A is copied, and then of B.
template <typename Scalar>
__global__ void __launch_bounds__(256)
pad_rows(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K,
         int parts_of_a, int a_row_bytes, int b_rows, int b_row_bytes) {
  start_next_launch();
  wait_for_previous_launch();  // which reads the workspace
  const int part = blockIdx.x * 8 + threadIdx.x / 32;
  if (part < parts_of_a) {
    copy_part(A, workspace, M, a_row_bytes, part);
  } else {
    const size_t of_a = parts_of_a ? static_cast<size_t>(M) * padded_bytes(a_row_bytes) : 0;
    copy_part(B, reinterpret_cast<unsigned char*>(workspace) + of_a, b_rows, b_row_bytes,
              part - parts_of_a);
  }
}
