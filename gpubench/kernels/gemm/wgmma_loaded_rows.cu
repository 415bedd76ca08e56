// wgmma_loaded_rows: rows of any length, loaded by the block's own warps.
//
// Compared with `wgmma_any_rows`: a small product would wait longer for the launch that copies its
// operands than for its steps. Here twelve warps of a block load the steps themselves, by words, and
// write them where the TMA would. A word of a stage lies in two aligned words of the operand.
//
//     stage        rows of 128 bytes: BM of A, and 64 of B for each 64 columns; swizzled
//     warp         every twelfth of these rows, a word a lane, eight rows under way at once
//     outside      zeros behind the ends of rows, and behind the last row
//
// A stage is filled when all twelve warps have arrived. They make their writes visible to the tensor
// cores before they arrive. Results leave as in `wgmma_any_rows`.
//
// What limits it: the instructions of the loads, about 30 for each word where the TMA needs none for
// a whole box. Each block loads its rows anew, and blocks do not share what they load.

#include "../lib/cluster/any_results.cuh"
#include "../lib/tma/padded_rows.cuh"

constexpr int LOADERS = 12;  // warps
constexpr int AT_ONCE = 8;   // rows of a warp

// Loads rows of a step by a warp, from row `first` and byte `byte` of the operand on.
template <int ROWS>
__device__ __forceinline__ void
load_rows(const AnyRows& rows, unsigned rest, int first, int byte, unsigned to, int warp) {
  const int lane = threadIdx.x % 32, left = rows.bytes - byte - lane * 4;
#pragma unroll 1
  for (int begin = warp; begin < ROWS; begin += LOADERS * AT_ONCE) {
    uint2 words[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int row = begin + i * LOADERS;
      const PlaceInRow place(rows, first + row, byte + lane * 4);
      words[i] = place.load(0, left > 0 && row < ROWS && first + row < rows.count);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int row = begin + i * LOADERS;
      const PlaceInRow place(rows, first + row, byte + lane * 4);
      unsigned word = place.joined(words[i], 0, rest);
      if (left < 4) word = left > 0 ? word & 0xFFFF : 0;
      if (first + row >= rows.count) word = 0;
      if (row < ROWS) {
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + row * ROW_BYTES +
                                                     swizzle(row, lane / 4) * 16 + lane % 4 * 4),
                     "r"(word)
                     : "memory");
      }
    }
  }
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int SPLITS, int CM, int CN>
__global__ void __launch_bounds__(128 * FittedTile<BM, BN>::CONSUMERS + 32 * LOADERS, 1)
wgmma_loaded_rows(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  using T = FittedTile<BM, BN>;
  static_assert(!T::MOVES_REGISTERS && CM * CN == 1, "small tiles, and nothing is shared");
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ Ring<STAGES> ring;
  const int warpgroup = warpgroup_index();
  const ClusterTiles<BM, BN, CM, CN, 8, SPLITS> tiles(M, N);
  const BlockTile tile = tiles[blockIdx.x / SPLITS];
  const StepsOfPart steps((K + BK - 1) / BK, tiles.rank.part, SPLITS);
  const unsigned base = shared_address(stages);
  Slot<STAGES> slot;
  start_next_launch();
  if (threadIdx.x == 0) ring.init(T::CONSUMERS, LOADERS);
  __syncthreads();
  if (warpgroup >= T::CONSUMERS) {
    wait_for_previous_launch();
    const int warp = threadIdx.x / 32 - 4 * T::CONSUMERS;
    const AnyRows of_a(A, M, K * 2), of_b(B, K, N * 2);
    const unsigned rest_of_a = of_a.rest(), rest_of_b = of_b.rest();
#pragma unroll 1
    for (int step = 0; step < steps.count; ++step, slot.advance()) {
      const int k = (steps.first + step) * BK;
      const unsigned stage = base + slot.stage * T::STAGE_BYTES;
      ring.freed[slot.stage].wait(slot.parity ^ 1);
      load_rows<BM>(of_a, rest_of_a, tile.row, k * 2, stage, warp);
#pragma unroll
      for (int col = 0; col < BN; col += 64) {
        load_rows<BK>(of_b, rest_of_b, k, (tile.col + col) * 2, stage + (BM + col) * ROW_BYTES,
                      warp);
      }
      publish_to_tma();
      __syncwarp();
      free_stage<1, 32>(ring.filled[slot.stage]);
    }
  } else {
    Sum<Scalar> sum[T::PIECES][T::SUMS];
    multiply_steps<1>(ring, slot, steps.count, 0, [&](bool add) {
      ring.filled[slot.stage].wait(slot.parity);
      start_fitted<Scalar, BM, BN>(sum, base + slot.stage * T::STAGE_BYTES, warpgroup, add);
    });
    store_sums<Scalar, BM, BN, SPLITS, 1>(sum, base, tiles.rank.part, 0, warpgroup, C, tile, M, N);
  }
}
