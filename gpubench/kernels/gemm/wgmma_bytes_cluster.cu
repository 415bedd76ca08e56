// wgmma_bytes_cluster: 8 bits for any shape: tiles whose rows or columns come by 16, and K in parts by
// the blocks of a cluster.
//
// Compared with `wgmma_bytes`: 512×512×8192 are 12 tiles of 128×192, whatever the order. Here a tile
// has 64 to 256 rows and columns, one of them by 16, as in `wgmma_fitted`, and the blocks of a
// cluster share a tile, as in `wgmma_split_cluster`. With 8 bits both operands lie along k, so either
// may be the instruction's operand of 64 rows: nothing is turned, but the sums of the transposed
// problem.
//
// Results of float8 leave as in 16 bits (`fitted_tile.cuh`, `split_sums.cuh`) where N is a multiple
// of 8. Others leave through shared memory as sums of 32 bits, whether K is divided or not: a thread
// reads four neighbours, adds up the parts (`cluster_sums.cuh`), and stores them. Rows of sums are
// padded so that what a warp writes at once goes to different banks. Any N will do there: they need
// no tensor map of C, and B is N×K.
//
// If K is no multiple of 16, A and B are copied first, as in `wgmma_any_rows`.
//
// What limits it: a block computes one tile, and nothing overlaps its end.

#include "../lib/cluster/split_sums.cuh"
#include "../lib/tma/padded_rows.cuh"

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

// Stores four sums of a row of C, rounded for float8.
template <typename Scalar>
__device__ __forceinline__ void
store_four(const Vector<Sum<Scalar>>& sums, void* C, int row, int col, int M, int N) {
  if (row >= M) return;
  if constexpr (RESULT_BYTES<Scalar> == 4) {
    store_vector(sums, static_cast<int*>(C) + static_cast<size_t>(row) * N, col, N, N % 4 == 0);
  } else {
    const uint2 words = {pack<__nv_bfloat16>(sums.lanes[0], sums.lanes[1]),
                         pack<__nv_bfloat16>(sums.lanes[2], sums.lanes[3])};
    unsigned short* const to = static_cast<unsigned short*>(C) + static_cast<size_t>(row) * N + col;
    if (N % 4 == 0) {
      if (col < N) *reinterpret_cast<uint2*>(to) = words;
    } else {
      if (col < N) to[0] = words.x & 0xFFFF;
      if (col + 1 < N) to[1] = words.x >> 16;
      if (col + 2 < N) to[2] = words.y & 0xFFFF;
      if (col + 3 < N) to[3] = words.y >> 16;
    }
  }
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int SPLITS, int CM, int CN>
__global__ void __launch_bounds__((FittedTile<BM, BN>::THREADS), 1)
wgmma_bytes_cluster(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
                    const __grid_constant__ CUtensorMap a_map,
                    const __grid_constant__ CUtensorMap b_map,
                    const __grid_constant__ CUtensorMap c_map) {
  using T = FittedTile<BM, BN>;
  using Number = Sum<Scalar>;
  constexpr int GROUP = 8;
  constexpr int BLOCKS = CM * CN;  // that share what they fetch
  constexpr int PITCH = SUMS_PITCH<BN, T::TRANSPOSED>;
  extern __shared__ __align__(1024) unsigned char stages[];
  compute_tile<Scalar, BM, BN, BK, STAGES, SPLITS, CM, CN, GROUP, true>(
      stages, M, N, K, &a_map, &b_map, nullptr,
      [&](auto& sum, unsigned ring, const auto& rank, int warpgroup, const BlockTile& tile) {
#pragma unroll
        for (int p = 0; p < T::PIECES; ++p) fence_sums(sum[p]);
        const int peer = rank.row * CN + rank.col;
        if constexpr (RESULT_BYTES<Scalar> == 2) {
          if (N % 8 == 0) {
            const Results<__nv_bfloat16> to{reinterpret_cast<__nv_bfloat16*>(C), M, N, tile.row,
                                            tile.col};
            if constexpr (SPLITS == 1) {
              store_through_ring<__nv_bfloat16, BM, BN>(sum, ring, &c_map, warpgroup, to);
            } else {
              add_units<BM, BN, SPLITS, BLOCKS>(sum, ring, rank.part, peer, warpgroup, to);
            }
            return;
          }
        }
        synchronize_consumers<T::CONSUMERS>();  // nobody reads the ring any more
        leave_sums<BM, BN>(sum, ring, warpgroup);
        add_parts<SPLITS, BLOCKS, BM, BN, PITCH, 128 * T::CONSUMERS, Number>(
            ring, rank.part, peer, [&](int row, int col, const Vector<Number>& sums) {
              store_four<Scalar>(sums, C, tile.row + row, tile.col + col, M, N);
            });
      });
}
