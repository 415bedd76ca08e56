// bfloat16_parts: splits float32 operands into bfloat16 parts. `wgmma_parts` introduces it.
//
// A number of 24 bits is the sum of three parts of 8 bits: each part is the rest that the parts
// before it leave, rounded. The workspace has the parts of 64 values of k in the order of use:
//
//     A   row of A: [64 values of k of part 2][the same 64 of part 0][of part 1][the next 64 ...
//     B   64 rows of part 2, the same 64 rows of part 0, of part 1, the next 64 ...
//
// So the parts are fetched like PARTS times as many values of k, with one step for each part.

#pragma once

#include "tensor_cores.cuh"

constexpr int CHUNK = 8;  // numbers that a thread splits: 16 bytes of each part

// The place of a part among the parts of a step: the smallest part is used first, with part 0.
template <int PARTS>
__host__ __device__ constexpr int place_of_part(int part) {
  return part == PARTS - 1 ? 0 : part + 1;
}

__device__ __forceinline__ float from_bits(unsigned bits) {
  return __builtin_bit_cast(float, bits);
}

// Splits two numbers. Each word gets a pair of parts, the first number's in the lower half. Parts
// of infinity, of NaN, and of a number that rounds to infinity in bfloat16 are infinity and NaN.
template <int PARTS>
__device__ __forceinline__ void split_pair(float first, float second, unsigned (&words)[PARTS]) {
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    words[part] = pack<__nv_bfloat16>(first, second);
    first -= from_bits(words[part] << 16);
    second -= from_bits(words[part] & 0xFFFF0000);
  }
}

// Splits a row's CHUNK numbers from `column` on, with zeros behind the row's end and where the row
// is not inside. Part p goes `part_distance` elements behind part p − 1, in the order of places.
template <int PARTS>
__device__ __forceinline__ void split_chunk(const float* row, int column, int columns, bool inside,
                                            unsigned short* to, size_t part_distance) {
  float numbers[CHUNK];
  const float* const from = row + column;
  if (inside && column + CHUNK <= columns && reinterpret_cast<size_t>(from) % 16 == 0) {
#pragma unroll
    for (int i = 0; i < CHUNK; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      numbers[i] = four.x, numbers[i + 1] = four.y, numbers[i + 2] = four.z;
      numbers[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < CHUNK; ++i) {
      numbers[i] = inside && column + i < columns ? from[i] : 0.0f;
    }
  }
  unsigned words[CHUNK / 2][PARTS];
#pragma unroll
  for (int i = 0; i < CHUNK / 2; ++i) {
    split_pair<PARTS>(numbers[2 * i], numbers[2 * i + 1], words[i]);
  }
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    *reinterpret_cast<uint4*>(to + place_of_part<PARTS>(part) * part_distance) = {
        words[0][part], words[1][part], words[2][part], words[3][part]};
  }
}

// Launched with a thread for each chunk: `blocks_of_a` blocks for A's chunks, then those for B's.
// The workspace has A's parts, and then B's. Rows of B's parts have a multiple of CHUNK elements.
template <int PARTS>
__device__ __forceinline__ void split_operands(const float* A, const float* B, float* workspace,
                                               int M, int N, int K, int blocks_of_a) {
  start_next_launch();
  wait_for_previous_launch();  // which reads the workspace
  const unsigned padded_k = (K + STEP - 1) / STEP * STEP;
  const bool of_a = static_cast<int>(blockIdx.x) < blocks_of_a;
  const unsigned block = of_a ? blockIdx.x : blockIdx.x - blocks_of_a;
  const unsigned index = block * 256 + threadIdx.x;
  const unsigned chunks = of_a ? padded_k / CHUNK : (N + CHUNK - 1) / CHUNK;  // of a row
  const unsigned row = index / chunks, column = index % chunks * CHUNK;
  if (row >= (of_a ? M : padded_k)) return;
  auto* to = reinterpret_cast<unsigned short*>(workspace);
  if (of_a) {
    to += (static_cast<size_t>(row) * padded_k + column / STEP * STEP) * PARTS + column % STEP;
    split_chunk<PARTS>(A + static_cast<size_t>(row) * K, column, K, true, to, STEP);
  } else {
    const size_t pitch = chunks * CHUNK;
    to += static_cast<size_t>(M) * padded_k * PARTS;
    to += (static_cast<size_t>(row / STEP * STEP) * PARTS + row % STEP) * pitch + column;
    split_chunk<PARTS>(B + static_cast<size_t>(row) * N, column, N, row < K, to, STEP * pitch);
  }
}
