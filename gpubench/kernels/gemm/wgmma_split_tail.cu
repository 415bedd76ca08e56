// wgmma_split_tail: blocks that stay, and a last round in which two share each tile.
//
// Compared with `wgmma_fitted`: a block that computes many tiles fetches the next one while it
// stores the last, and starts once. Where registers allow, results wait in them, as in
// `wgmma_deferred`, and leave during the next tile's first steps.
//
// In the last round of tiles a part of the GPU may have nothing to do. Stream-K (`stream_k.cuh`)
// evens that out through device memory, with flags that a further launch must clear. Here the last
// tiles, if they are few enough, are taken by a pair of blocks each, with half of K, and the sums
// meet in shared memory (`split_sums.cuh`): half a round instead of a whole one.
//
//     blocks 0, 1 | 0 1 | 4 5 | 8 |     four blocks, in two pairs: two rounds of pairs of tiles, and
//     blocks 2, 3 | 2 3 | 6 7 | 9 |     the last two tiles by both blocks of a pair, in half the time
//
// What limits it: halves of rounds.

#include "../lib/cluster/split_sums.cuh"

// The tile that both blocks of this cluster share in the end; no columns: none. The clusters take
// the tiles of the pairs that remain after `whole` in their order, one each.
template <int BM, int BN, int CM, int CN, int GROUP>
__device__ __forceinline__ BlockTile shared_tile(const ClusterTiles<BM, BN, CM, CN, GROUP>& tiles,
                                                 int whole) {
  if constexpr (CM * CN == 1) return {};
  const int single = blockIdx.x / 2;
  const int pair = whole + single / 2;
  if (pair >= tiles.count()) return {};
  auto same = tiles;
  same.rank.row = single % 2 / CN;
  same.rank.col = single % 2 % CN;
  return same[pair];
}

// Requests a step by this block alone: the boxes are those that a pair sends.
template <int BM, int BN, int CM, int CN>
__device__ __forceinline__ void fetch_alone(Mbarrier& filled, unsigned char* stage,
                                            const BlockTile& tile, int k, const CUtensorMap* a_map,
                                            const CUtensorMap* b_map, const CUtensorMap* rest_map) {
  filled.arrive_expect_bytes((BM + BN) * ROW_BYTES);
#pragma unroll
  for (int i = 0; i < CN; ++i) {
    filled.copy_box(stage + i * (BM / CN) * ROW_BYTES, a_map, tile.row + i * (BM / CN), k);
  }
#pragma unroll
  for (int i = 0; i < (BN + 63) / 64 * 64 / box_of_b(BN, CM); ++i) {
    const int line = i * box_of_b(BN, CM);
    filled.copy_box(stage + (BM + line) * ROW_BYTES, line < BN / 64 * 64 ? b_map : rest_map,
                    k + line % 64, tile.col + line / 64 * 64);
  }
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP, int PDL>
__global__ void __launch_bounds__(128 * (FittedTile<BM, BN>::CONSUMERS + 1), 1)
wgmma_split_tail(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K, int whole,
                 const __grid_constant__ CUtensorMap a_map,
                 const __grid_constant__ CUtensorMap b_map,
                 const __grid_constant__ CUtensorMap rest_map) {
  using T = FittedTile<BM, BN>;
  constexpr int BLOCKS = CM * CN;
  constexpr bool DEFERS = !T::MOVES_REGISTERS;  // results fit beside sums
  constexpr int EACH = T::SUMS / UNIT_SUMS;     // units of a piece
  constexpr int UNITS = T::PIECES * EACH;
  constexpr int FIRST_STEPS = 4;                             // during which results leave
  constexpr int BUFFERS = 2;                                 // of a warp
  extern __shared__ __align__(1024) unsigned char stages[];  // behind them: buffers of results
  __shared__ Ring<STAGES> ring;

  const int warpgroup = warpgroup_index();
  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int part = tiles.rank.row + tiles.rank.col;
  const int steps = max((K + BK - 1) / BK, FIRST_STEPS);
  const int half = max(((K + BK - 1) / BK + 1) / 2, FIRST_STEPS);  // both blocks keep step
  const BlockTile last = shared_tile(tiles, whole);
  const int clusters = gridDim.x / BLOCKS;
  init_cluster(ring, T::CONSUMERS * BLOCKS);
  if constexpr (PDL) start_next_launch();

  if (warpgroup == T::CONSUMERS) {
    lower_registers<T::PRODUCER_REGISTERS>();
    if (threadIdx.x % 128 != 0) return;
    if constexpr (PDL) wait_for_previous_launch();
    Slot<STAGES> slot;
    bool backwards = false;
    for (int index = blockIdx.x / BLOCKS; index < whole; index += clusters) {
      const BlockTile tile = tiles[index];
#pragma unroll 1
      for (int step = 0; step < steps; ++step, slot.advance()) {
        ring.freed[slot.stage].wait(slot.parity ^ 1);
        fetch_fitted<BM, BN>(ring.filled[slot.stage], stages + slot.stage * T::STAGE_BYTES,
                             tiles.rank, tile, (backwards ? steps - 1 - step : step) * BK, &a_map,
                             &b_map, &rest_map);
      }
      backwards = !backwards;
    }
    if (last.columns) {
#pragma unroll 1
      for (int step = 0; step < half; ++step, slot.advance()) {
        ring.freed[slot.stage].wait(slot.parity ^ 1);
        fetch_alone<BM, BN, CM, CN>(ring.filled[slot.stage], stages + slot.stage * T::STAGE_BYTES,
                                    last, (part * half + step) * BK, &a_map, &b_map, &rest_map);
      }
    }
    if constexpr (BLOCKS > 1) await_all_freed(ring, slot);
  } else {
    raise_registers<T::CONSUMER_REGISTERS>();
    const unsigned base = shared_address(stages);
    const unsigned buffers =
        base + STAGES * T::STAGE_BYTES + static_cast<int>(threadIdx.x) / 32 * BUFFERS * 512;
    Slot<STAGES> slot;
    int before = 0;
    float sum[T::PIECES][T::SUMS];
    unsigned rounded[DEFERS ? UNITS : 1][4];  // results of the tile before
    Results<Scalar> to{C, M, N, 0, 0};
    bool pending = false;

    const auto store = [&](const unsigned (&words)[4], int unit) {
      __syncwarp();  // the buffer has been read
      store_unit<T::TRANSPOSED>(words, buffers + unit % BUFFERS * 512, to,
                                warpgroup * T::PIECES + unit / EACH, unit % EACH);
    };
    const auto start = [&](bool add) {
      ring.filled[slot.stage].wait(slot.parity);
      start_fitted<Scalar, BM, BN>(sum, base + slot.stage * T::STAGE_BYTES, warpgroup, add);
    };

    for (int index = blockIdx.x / BLOCKS; index < whole || last.columns; index += clusters) {
      const bool shared = index >= whole;
      const int count = shared ? half : steps;
      int step = 0;
      if constexpr (DEFERS) {
#pragma unroll  // results are in registers: their numbers must be constants
        for (; step < FIRST_STEPS; ++step) {
          constexpr int A_STEP = (UNITS + FIRST_STEPS - 1) / FIRST_STEPS;
          start(step > 0);
          if (pending) {
#pragma unroll
            for (int unit = step * A_STEP; unit < min((step + 1) * A_STEP, UNITS); ++unit) {
              store(rounded[unit], unit);
            }
          }
          end_step<BLOCKS>(ring, slot, before, step == 0);
        }
      }
#pragma unroll 1
      for (; step < count; ++step) {
        start(step > 0);
        end_step<BLOCKS>(ring, slot, before, step == 0);
      }
      await_multiplications<0>();
      free_stage<BLOCKS>(ring.freed[before]);
      const BlockTile tile = shared ? last : tiles[index];
      to.row = tile.row;
      to.col = tile.col;
      pending = DEFERS && !shared;
      if constexpr (BLOCKS == 2) {
        if (shared) {
          add_units<BM, BN, 2, 1>(sum, base, part, 0, warpgroup, to);
          break;
        }
      }
#pragma unroll
      for (int unit = 0; unit < UNITS; ++unit) {
        if constexpr (DEFERS) {
          round_unit<Scalar>(rounded[unit], sum[unit / EACH] + unit % EACH * UNIT_SUMS);
        } else {
          unsigned words[4];
          round_unit<Scalar>(words, sum[unit / EACH] + unit % EACH * UNIT_SUMS);
          store(words, unit);
        }
      }
    }
    if constexpr (DEFERS) {
      if (pending) {
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) store(rounded[unit], unit);
      }
    }
  }
}
