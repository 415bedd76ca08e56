// any_results: results of C with any number of columns leave through shared memory, as sums of 32
// bits. If blocks share K or results have 32 bits, a thread reads four neighbours, adds up the parts
// (`cluster_sums.cuh`), and stores them. Otherwise a warp rounds and stores whole rows of a tile.
// `wgmma_bytes_cluster` introduces the sums.

#pragma once

#include "fitted_tile.cuh"

// The rows of sums in shared memory. Eight lanes of a warp that have one row each, and four that have
// a pair of columns each, write to different banks; transposed, eight have a column and four a pair
// of rows.
template <int BN, bool TRANSPOSED>
constexpr int SUMS_PITCH = TRANSPOSED ? BN * 4 + 16 : BN * 4 + (BN % 32 ? 96 : 32);

// Leaves a warpgroup's sums in shared memory, where row 0 is at `memory`.
template <int BM, int BN, typename Number, int PIECES, int SUMS>
__device__ __forceinline__ void
leave_sums(const Number (&sum)[PIECES][SUMS], unsigned memory, int warpgroup) {
  constexpr bool TRANSPOSED = FittedTile<BM, BN>::TRANSPOSED;
  constexpr int PITCH = SUMS_PITCH<BN, TRANSPOSED>;
  const int lane = threadIdx.x % 32;
  const int along = threadIdx.x % 128 / 32 * 16 + lane / 4;  // of the piece's 64
  const int across = lane % 4 * 2;
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const int of_64 = (warpgroup * PIECES + p) * 64 + along + i / 2 % 2 * 8;
      const int of_other = across + i / 4 * 8 + i % 2;
      const int row = TRANSPOSED ? of_other : of_64, col = TRANSPOSED ? of_64 : of_other;
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(memory + row * PITCH + col * 4),
                   "r"(__builtin_bit_cast(unsigned, sum[p][i]))
                   : "memory");
    }
  }
}

// Stores at most two results of 16 bits, at once if there are two.
__device__ __forceinline__ void store_two(unsigned short* to, unsigned two, int count) {
  if (count > 1) *reinterpret_cast<unsigned*>(to) = two;
  if (count == 1) *to = static_cast<unsigned short>(two);
}

// Stores four sums of a row of C, rounded if results have 16 bits. A row of these begins at any
// multiple of 2 bytes.
template <typename Scalar>
__device__ __forceinline__ void
store_four(const Vector<Sum<Scalar>>& sums, void* C, int row, int col, int N) {
  if constexpr (RESULT_BYTES<Scalar> == 4) {
    store_vector(sums, static_cast<int*>(C) + static_cast<size_t>(row) * N, col, N, N % 4 == 0);
  } else {
    const unsigned low = pack<Output<Scalar>>(sums.lanes[0], sums.lanes[1]);
    const unsigned high = pack<Output<Scalar>>(sums.lanes[2], sums.lanes[3]);
    unsigned short* const to = static_cast<unsigned short*>(C) + static_cast<size_t>(row) * N + col;
    const int count = N - col;
    if (reinterpret_cast<size_t>(to) % 4 == 0) {
      store_two(to, low, count);
      store_two(to + 2, high, count - 2);
    } else {
      store_two(to, low, min(count, 1));
      store_two(to + 1, low >> 16 | high << 16, count - 1);
      store_two(to + 3, high >> 16, min(count - 3, 1));
    }
  }
}

__device__ __forceinline__ float load_sum(unsigned address) {
  float sum;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(sum) : "r"(address));
  return sum;
}

// Stores a tile of results of 16 bits by WARPS warps: rows of words, so that a warp stores whole
// sectors. Where a row of C begins in the middle of a word, its first result is stored alone. The
// words of four rows are read before any of them is stored.
template <typename Scalar, int BM, int BN, int PITCH, int WARPS>
__device__ __forceinline__ void
store_rows(unsigned memory, unsigned short* C, const BlockTile& tile, int M, int N) {
  constexpr int AT_ONCE = 4, WORDS = (BN + 63) / 64;
  const int lane = threadIdx.x % 32;
  const int rows = min(BM, M - tile.row), columns = min(BN, N - tile.col);
#pragma unroll 1
  for (int first = threadIdx.x / 32; first < rows; first += WARPS * AT_ONCE) {
    unsigned short* to[AT_ONCE];
    int odd[AT_ONCE];
    unsigned words[AT_ONCE][WORDS], alone[AT_ONCE];
#pragma unroll
    for (int r = 0; r < AT_ONCE; ++r) {
      const int row = min(first + r * WARPS, BM - 1);
      to[r] = C + static_cast<size_t>(tile.row + row) * N + tile.col;
      odd[r] = reinterpret_cast<size_t>(to[r]) % 4 / 2;
      const unsigned sums = memory + row * PITCH;
      alone[r] = pack<Output<Scalar>>(load_sum(sums), 0);
#pragma unroll
      for (int i = 0; i < WORDS; ++i) {
        const unsigned at = sums + min(i * 64 + lane * 2 + odd[r], BN - 1) * 4;
        words[r][i] = pack<Output<Scalar>>(load_sum(at), load_sum(at + 4));
      }
    }
#pragma unroll
    for (int r = 0; r < AT_ONCE; ++r) {
      const int left = first + r * WARPS < rows ? columns : 0;
#pragma unroll
      for (int i = 0; i < WORDS; ++i) {
        const int col = i * 64 + lane * 2 + odd[r];
        store_two(to[r] + col, words[r][i], left - col);
      }
      if (lane < odd[r]) store_two(to[r], alone[r], min(left, 1));
    }
  }
}

// Stores a block's tile of C, or its part of one that PARTS blocks share, by all warpgroups that
// multiply.
template <typename Scalar, int BM, int BN, int CM, int CN, int PARTS, int PIECES, int SUMS>
__device__ __forceinline__ void
store_sums(Sum<Scalar> (&sum)[PIECES][SUMS], unsigned memory, const Rank<CM, CN, PARTS>& rank,
           int warpgroup, void* C, const BlockTile& tile, int M, int N) {
  using T = FittedTile<BM, BN>;
#pragma unroll
  for (int p = 0; p < PIECES; ++p) fence_sums(sum[p]);
  synchronize_consumers<T::CONSUMERS>();  // nobody reads the ring any more
  leave_sums<BM, BN>(sum, memory, warpgroup);
  constexpr int PITCH = SUMS_PITCH<BN, T::TRANSPOSED>;
  if constexpr (PARTS == 1 && RESULT_BYTES<Scalar> == 2) {
    synchronize_consumers<T::CONSUMERS>();
    store_rows<Scalar, BM, BN, PITCH, 4 * T::CONSUMERS>(memory, static_cast<unsigned short*>(C),
                                                        tile, M, N);
  } else {
    add_parts<PARTS, CM * CN, BM, BN, PITCH, 128 * T::CONSUMERS, Sum<Scalar>>(
        memory, rank.part, rank.peer(), [&](int row, int col, const Vector<Sum<Scalar>>& sums) {
          if (tile.row + row < M) store_four<Scalar>(sums, C, tile.row + row, tile.col + col, N);
        });
  }
}
