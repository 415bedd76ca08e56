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

// The rows of an operand, which begin at any byte: a word of a row lies in two aligned words. No load
// waits for another one. The array's last bytes, which are no whole word, are loaded alone.
struct AnyRows {
  const unsigned char* array;
  int count;
  int bytes;                  // of a row
  const unsigned char* end;
  const unsigned char* last;  // behind the last whole word

  __device__ __forceinline__ AnyRows(const void* from, int count, int bytes)
      : array(static_cast<const unsigned char*>(from)),
        count(count),
        bytes(bytes),
        end(array + static_cast<size_t>(count) * bytes),
        last(end - reinterpret_cast<size_t>(end) % 4) {}
  // The bytes behind the last whole word.
  __device__ __forceinline__ unsigned rest() const {
    unsigned word = 0;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      if (last + i < end) word |= last[i] << i * 8;
    }
    return word;
  }
};

// A lane's place in a row, and the bytes of whole words from there on, if there are few.
struct PlaceInRow {
  const unsigned char* word;
  int shift;  // bits
  int whole;

  __device__ __forceinline__ PlaceInRow(const AnyRows& rows, int row, int byte) {
    word = rows.array + static_cast<size_t>(row) * rows.bytes + byte;
    shift = reinterpret_cast<size_t>(word) % 4 * 8;
    word -= shift / 8;
    whole = static_cast<int>(min(rows.last - word, ptrdiff_t{2} * PART_BYTES));
  }
  // The two aligned words that hold the word `offset` bytes further. Zero if it is not `wanted`.
  __device__ __forceinline__ uint2 load(int offset, bool wanted) const {
    uint2 two = {0, 0};
    if (wanted && offset < whole) two.x = *reinterpret_cast<const unsigned*>(word + offset);
    if (wanted && offset + 4 < whole) two.y = *reinterpret_cast<const unsigned*>(word + offset + 4);
    return two;
  }
  __device__ __forceinline__ unsigned joined(const uint2& two, int offset, unsigned rest) const {
    const unsigned long long low = offset == whole ? rest : two.x;
    const unsigned long long high = offset + 4 == whole ? rest : two.y;
    return static_cast<unsigned>((high << 32 | low) >> shift);
  }
};

// Copies a part of a row by a warp. What lies behind a row's last byte is of no use.
__device__ __forceinline__ void copy_part(const AnyRows& rows, unsigned char* to, int number) {
  const int row = number / parts_of_row(rows.bytes);
  if (row >= rows.count) return;
  const int begin = number % parts_of_row(rows.bytes) * PART_BYTES + threadIdx.x % 32 * 4;
  const PlaceInRow place(rows, row, begin);
  uint2 words[PART_WORDS];
#pragma unroll
  for (int i = 0; i < PART_WORDS; ++i) {
    words[i] = place.load(i * 128, begin + i * 128 < rows.bytes);
  }
  const unsigned rest = rows.rest();
  unsigned char* const copy = to + static_cast<size_t>(row) * padded_bytes(rows.bytes) + begin;
#pragma unroll
  for (int i = 0; i < PART_WORDS; ++i) {
    const unsigned word = place.joined(words[i], i * 128, rest);
    if (begin + i * 128 < rows.bytes) *reinterpret_cast<unsigned*>(copy + i * 128) = word;
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
  const size_t copy_of_a = parts_of_a ? static_cast<size_t>(M) * padded_bytes(a_row_bytes) : 0;
  const AnyRows rows(of_a ? A : B, of_a ? M : b_rows, of_a ? a_row_bytes : b_row_bytes);
  copy_part(rows, reinterpret_cast<unsigned char*>(workspace) + (of_a ? 0 : copy_of_a),
            of_a ? part : part - parts_of_a);
}
