// padded_rows: copies operands into rows that the TMA takes. `wgmma_any_rows` introduces it.

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

// A warp copies a part of a row, WORDS words for each lane. A row begins at any byte, so each word
// that is stored is made of two aligned words that are loaded. The array's last bytes, which are no
// whole word, are loaded alone. Anything may be stored behind a row's last byte.
template <int WORDS>
__device__ __forceinline__ void
copy_part(const unsigned char* array, unsigned char* to, int rows, int row_bytes, int row,
          int begin) {
  const int of_row = row_bytes - begin;
  const unsigned char* const end = array + static_cast<size_t>(rows) * row_bytes;
  const unsigned char* const last = end - reinterpret_cast<size_t>(end) % 4;
  const unsigned char* word = array + static_cast<size_t>(row) * row_bytes + begin;
  const int shift = reinterpret_cast<size_t>(word) % 4 * 8;
  word -= shift / 8;
  // Bytes of whole words from here to the array's end, or more than this lane loads.
  const int whole = static_cast<int>(min(last - word, ptrdiff_t{2} * PART_BYTES));
  unsigned words[WORDS][2], rest = 0;
#pragma unroll
  for (int i = 0; i < WORDS; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int at = i * 128 + j * 4;
      words[i][j] = 0;
      if (i * 128 < of_row && at < whole) {
        words[i][j] = *reinterpret_cast<const unsigned*>(word + at);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    if (last + i < end) rest |= last[i] << i * 8;
  }
  to += static_cast<size_t>(row) * padded_bytes(row_bytes) + begin;
#pragma unroll
  for (int i = 0; i < WORDS; ++i) {
    const unsigned long long low = i * 128 == whole ? rest : words[i][0];
    const unsigned long long high = i * 128 + 4 == whole ? rest : words[i][1];
    const unsigned both = static_cast<unsigned>((high << 32 | low) >> shift);
    if (i * 128 < of_row) *reinterpret_cast<unsigned*>(to + i * 128) = both;
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
  const bool of_a = part < parts_of_a;
  const int rows = of_a ? M : b_rows, row_bytes = of_a ? a_row_bytes : b_row_bytes;
  const int number = of_a ? part : part - parts_of_a;
  const int row = number / parts_of_row(row_bytes);
  if (row >= rows) return;
  const int begin = number % parts_of_row(row_bytes) * PART_BYTES;
  const int of_lane = begin + threadIdx.x % 32 * 4;
  const size_t of_copy = parts_of_a ? static_cast<size_t>(M) * padded_bytes(a_row_bytes) : 0;
  const auto* const from = reinterpret_cast<const unsigned char*>(of_a ? A : B);
  auto* const to = reinterpret_cast<unsigned char*>(workspace) + (of_a ? 0 : of_copy);
  if (row_bytes - begin <= PART_BYTES / 4) {  // a short part needs few of the instructions
    copy_part<PART_WORDS / 4>(from, to, rows, row_bytes, row, of_lane);
  } else if (row_bytes - begin <= PART_BYTES / 2) {
    copy_part<PART_WORDS / 2>(from, to, rows, row_bytes, row, of_lane);
  } else {
    copy_part<PART_WORDS>(from, to, rows, row_bytes, row, of_lane);
  }
}
