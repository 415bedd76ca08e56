// wgmma_any_rows: rows of any length, by a copy in front of the product.
//
// Compared with `wgmma_split_cluster`: the TMA takes only rows that are a multiple of 16 bytes apart,
// and begins a copy only at a multiple of 16 bytes. So a first launch copies each operand whose rows
// are not so into a workspace, in rows that begin with a line of the L2 cache. Its blocks let the
// product's blocks start, which wait for it when their barriers are ready. The tensor maps end where
// the rows end: what lies between the rows of the workspace is never read.
//
//     pad_rows         warp: 1 KiB of a row, eight words a lane; two words loaded for each one stored
//     wgmma_any_rows   the product on A or its copy, and B or its copy
//
// Results have no copy. A block rounds its tile into shared memory, and a warp stores a row of it by
// words. Where a row of C begins in the middle of a word, so do the words. Blocks that share a tile
// store their parts through a warp's scratch of 16×16, each result alone.
//
// What limits it: small products. Each operand that is copied is read and written once more, and
// the copy takes 2 µs however small it is.

#include "../lib/cluster/split_sums.cuh"
#include "../lib/tma/padded_rows.cuh"

// Leaves a warpgroup's results in shared memory, in rows of PITCH bytes.
template <typename Scalar, bool TRANSPOSED, int PITCH, int PIECES, int SUMS>
__device__ __forceinline__ void
leave_results(const float (&sum)[PIECES][SUMS], unsigned memory, int warpgroup) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const int of_warp = (warpgroup * PIECES + p) * 64 + threadIdx.x % 128 / 32 * 16;
#pragma unroll
    for (int unit = 0; unit < SUMS / UNIT_SUMS; ++unit) {
      const int row = (TRANSPOSED ? unit * UNIT : of_warp) + unit_row<TRANSPOSED>(lane);
      const int col = (TRANSPOSED ? of_warp : unit * UNIT) + unit_half<TRANSPOSED>(lane) * 8;
      unsigned words[4];
      round_unit<Scalar>(words, sum[p] + unit * UNIT_SUMS);
      put_unit<TRANSPOSED>(memory + row * PITCH + col * 2, words);
    }
  }
}

__device__ __forceinline__ unsigned load_word(unsigned address) {
  unsigned word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}

// Stores a row of at most BN results at element `first` of C, by a warp. `row` is its address in
// shared memory.
template <int BN>
__device__ __forceinline__ void
store_row(unsigned short* C, size_t first, unsigned row, int columns) {
  const int odd = reinterpret_cast<size_t>(C + first) % 4 / 2, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < (BN + 63) / 64; ++i) {
    const int col = i * 64 + lane * 2;  // of a word in shared memory; C's word begins `odd` further
    if (col >= columns) break;
    unsigned word = load_word(row + col * 2);
    if (odd) {
      if (col == 0) C[first] = static_cast<unsigned short>(word);
      word = word >> 16 | load_word(row + col * 2 + 4) << 16;
    }
    if (col + odd + 1 < columns) {
      *reinterpret_cast<unsigned*>(C + first + col + odd) = word;
    } else if (col + odd < columns) {
      C[first + col + odd] = static_cast<unsigned short>(word);
    }
  }
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int SPLITS, int CM, int CN,
          int GROUP, int PDL>
__global__ void __launch_bounds__((FittedTile<BM, BN>::THREADS), 1)
wgmma_any_rows(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
               const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
               const __grid_constant__ CUtensorMap rest_map) {
  extern __shared__ __align__(1024) unsigned char stages[];
  compute_tile<Scalar, BM, BN, BK, STAGES, SPLITS, CM, CN, GROUP, PDL>(
      stages, M, N, K, &a_map, &b_map, &rest_map,
      [&](auto& sum, unsigned ring, const auto& rank, int warpgroup, const BlockTile& tile) {
        if constexpr (SPLITS > 1) {
          const Results<Scalar, true> to{C, M, N, tile.row, tile.col};
          add_units<BM, BN, SPLITS, CM * CN>(sum, ring, rank.part, rank.row * CN + rank.col,
                                             warpgroup, to);
        } else {
          using T = FittedTile<BM, BN>;
          constexpr int PITCH = BN * 2 + 16;      // so that eight rows lie in different banks
          synchronize_consumers<T::CONSUMERS>();  // nobody reads the ring any more
          leave_results<Scalar, T::TRANSPOSED, PITCH>(sum, ring, warpgroup);
          synchronize_consumers<T::CONSUMERS>();
          const int rows = min(BM, M - tile.row), columns = min(BN, N - tile.col);
#pragma unroll 4
          for (int row = threadIdx.x / 32; row < rows; row += 4 * T::CONSUMERS) {
            store_row<BN>(reinterpret_cast<unsigned short*>(C),
                          static_cast<size_t>(tile.row + row) * N + tile.col, ring + row * PITCH,
                          columns);
          }
        }
      });
}
