// any_results: results of C with any number of columns leave through shared memory, as sums of 32
// bits. If blocks share K or results have 32 bits, a thread adds up the parts of four neighbours
// (`cluster_sums.cuh`) and stores them. Otherwise a warp rounds and stores whole rows of a tile.
// `wgmma_bytes_cluster` introduces the sums.

#pragma once

#include "fitted_tile.cuh"

// Bytes from a row of sums in shared memory to the next. The padding lets a warp's lanes, which
// have eight rows and four pairs of columns (transposed: the reverse), write to different banks.
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
      PTX("st.shared.b32 [%0], %1;", "r"(memory + row * PITCH + col * 4),
          "r"(__builtin_bit_cast(unsigned, sum[p][i])));
    }
  }
}

// Stores up to two results of 16 bits, two of them with one instruction.
__device__ __forceinline__ void store_two(unsigned short* to, unsigned two, int count) {
  if (count > 1) *reinterpret_cast<unsigned*>(to) = two;
  if (count == 1) *to = static_cast<unsigned short>(two);
}

// Stores four sums of a row of C, for any N, rounded if results have 16 bits.
template <typename Scalar>
__device__ __forceinline__ void
store_four(const Vector<Sum<Scalar>>& sums, Output<Scalar>* C, int row, int col, int N) {
  if constexpr (RESULT_BYTES<Scalar> == 4) {
    store_vector(sums, C + static_cast<size_t>(row) * N, col, N, N % 4 == 0);
  } else {
    const unsigned low = pack<Output<Scalar>>(sums.lanes[0], sums.lanes[1]);
    const unsigned high = pack<Output<Scalar>>(sums.lanes[2], sums.lanes[3]);
    auto* const to = reinterpret_cast<unsigned short*>(C) + static_cast<size_t>(row) * N + col;
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

// WARPS warps store a tile of results of 16 bits as rows of words, so that a warp stores whole
// sectors. If a row of C begins in the middle of a word, its first result is stored alone. The
// words of four rows are read before any of them is stored.
template <int BM, int BN, int PITCH, int WARPS, typename Number>
__device__ __forceinline__ void store_rows(unsigned memory, const Results<Number>& results) {
  constexpr int AT_ONCE = 4, WORDS = (BN + 63) / 64;
  auto* const c = reinterpret_cast<unsigned short*>(results.C);
  const int lane = threadIdx.x % 32;
  const int rows = min(BM, results.M - results.row), columns = min(BN, results.N - results.col);
#pragma unroll 1
  for (int first = threadIdx.x / 32; first < rows; first += WARPS * AT_ONCE) {
    unsigned short* to[AT_ONCE];
    int odd[AT_ONCE];
    unsigned words[AT_ONCE][WORDS], alone[AT_ONCE];
#pragma unroll
    for (int r = 0; r < AT_ONCE; ++r) {
      const int row = min(first + r * WARPS, BM - 1);
      to[r] = c + static_cast<size_t>(results.row + row) * results.N + results.col;
      odd[r] = reinterpret_cast<size_t>(to[r]) % 4 / 2;
      const unsigned sums = memory + row * PITCH;
      alone[r] = pack<Number>(load_sum(sums), 0);
#pragma unroll
      for (int i = 0; i < WORDS; ++i) {
        const unsigned at = sums + min(i * 64 + lane * 2 + odd[r], BN - 1) * 4;
        words[r][i] = pack<Number>(load_sum(at), load_sum(at + 4));
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

// All warpgroups that multiply store the block's tile, or its share of a tile of PARTS blocks.
template <typename Scalar, int BM, int BN, int CM, int CN, int PARTS, int PIECES, int SUMS>
__device__ __forceinline__ void
store_sums(Sum<Scalar> (&sum)[PIECES][SUMS], unsigned memory, const Rank<CM, CN, PARTS>& rank,
           int warpgroup, const Results<Output<Scalar>>& to) {
  using T = FittedTile<BM, BN>;
#pragma unroll
  for (int p = 0; p < PIECES; ++p) fence_sums(sum[p]);
  synchronize_consumers<T::CONSUMERS>();  // all have read the ring
  leave_sums<BM, BN>(sum, memory, warpgroup);
  constexpr int PITCH = SUMS_PITCH<BN, T::TRANSPOSED>;
  if constexpr (PARTS == 1 && RESULT_BYTES<Scalar> == 2) {
    synchronize_consumers<T::CONSUMERS>();
    store_rows<BM, BN, PITCH, 4 * T::CONSUMERS>(memory, to);
  } else {
    add_parts<PARTS, CM * CN, BM, BN, PITCH, 128 * T::CONSUMERS, Sum<Scalar>>(
        memory, rank.part, rank.peer(), [&](int row, int col, const Vector<Sum<Scalar>>& sums) {
          if (to.row + row < to.M) store_four<Scalar>(sums, to.C, to.row + row, to.col + col, to.N);
        });
  }
}
