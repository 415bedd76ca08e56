// wgmma_split_tail: blocks that stay, and a last round in which two share each tile.
//
// Against `wgmma_deferred`: 1848×7080 are 240 pairs of tiles of 128×256... for 66 pairs of blocks: three
// rounds, and a fourth one in which a part of the GPU has nothing to do. Stream-K (`stream_k.cuh`)
// evens that out through device memory, with flags that somebody must clear. Here the last tiles, if
// they are few enough, are taken by a pair of blocks each, with half of K, and the sums meet in shared
// memory (`split_sums.cuh`): half a round instead of a whole one, and the results of the round before
// leave meanwhile.
//
//     blocks 0, 1 | 0 1 | 4 5 | 8 |     four blocks, in two pairs: two rounds of pairs of tiles, and
//     blocks 2, 3 | 2 3 | 6 7 | 9 |     the last two tiles by both blocks of a pair, in half the time
//
// What limits it: halves of rounds.

#include "../split_sums.cuh"

// The tiles that are taken whole, in pairs: the first ones.
template <typename Tiles>
struct FirstTiles : Tiles {
  int whole;

  __device__ __forceinline__ FirstTiles(const Tiles& tiles, int whole)
      : Tiles(tiles), whole(whole) {}
  __device__ __forceinline__ int count() const { return whole; }
};

// The tile that both blocks of this cluster share in the end; no columns: none. The clusters take the
// tiles of the remaining pairs in their order, one each.
template <int BM, int BN, int CM, int CN, int GROUP>
__device__ __forceinline__ BlockTile
shared_tile(const ClusterTiles<BM, BN, CM, CN, GROUP>& tiles, int whole) {
  const int single = blockIdx.x / 2;
  const int pair = whole + single / 2;
  if (pair >= tiles.count()) return {};
  auto same = tiles;
  same.rank.row = single % 2 / CN;
  same.rank.col = single % 2 % CN;
  return same[pair];
}

// Requests a step by this block alone: the boxes are those of a pair, in which A may be sent by halves.
template <int BM, int BN, int CN>
__device__ __forceinline__ void fetch_alone(Mbarrier& filled, unsigned char* stage,
                                            const BlockTile& tile, int k, const CUtensorMap* a_map,
                                            const CUtensorMap* b_map) {
  filled.arrive_expect_bytes((BM + BN) * ROW_BYTES);
#pragma unroll
  for (int i = 0; i < CN; ++i) {
    filled.copy_box(stage + i * (BM / CN) * ROW_BYTES, a_map, tile.row + i * (BM / CN), k);
  }
#pragma unroll
  for (int j = 0; j < BN / 64; ++j) {
    filled.copy_box(stage + (BM + j * STEP) * ROW_BYTES, b_map, k, tile.col + j * 64);
  }
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP, int PDL>
__global__ void __launch_bounds__(Roles<BM>::THREADS, 1)
wgmma_split_tail(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K, int whole,
                 const __grid_constant__ CUtensorMap a_map,
                 const __grid_constant__ CUtensorMap b_map,
                 const __grid_constant__ CUtensorMap c_map) {
  using R = Roles<BM>;
  static_assert(CM * CN == 2, "two blocks share a tile");
  constexpr int ACROSS = BN / 64;
  constexpr int BOXES = R::PIECES * ACROSS;                  // of a consumer
  extern __shared__ __align__(1024) unsigned char stages[];  // behind them: buffers of results
  __shared__ Ring<STAGES> ring;

  const int warpgroup = warpgroup_index();
  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int part = tiles.rank.row + tiles.rank.col;
  const int steps = max((K + BK - 1) / BK, BOXES);
  const int half = max(((K + BK - 1) / BK + 1) / 2, BOXES);  // both blocks keep step
  const BlockTile last = shared_tile(tiles, whole);
  init_cluster(ring, R::CONSUMERS * 2);
  if constexpr (PDL) start_next_launch();

  if (warpgroup == R::CONSUMERS) {
    lower_registers<R::PRODUCER_REGISTERS>();
    if (threadIdx.x % 128 != 0) return;
    if constexpr (PDL) wait_for_previous_launch();
    auto slot = produce_tiles<BM, BN, CM, CN>(ring, stages, FirstTiles(tiles, whole), steps, &a_map,
                                              &b_map);
    if (last.columns) {
#pragma unroll 1
      for (int step = 0; step < half; ++step, slot.advance()) {
        ring.freed[slot.stage].wait(slot.parity ^ 1);
        fetch_alone<BM, BN, CN>(ring.filled[slot.stage],
                                stages + slot.stage * (BM + BN) * ROW_BYTES, last,
                                (part * half + step) * BK, &a_map, &b_map);
      }
    }
    await_all_freed(ring, slot);
  } else {
    raise_registers<R::CONSUMER_REGISTERS>();
    const unsigned base = shared_address(stages);
    ResultBoxes boxes(&c_map, base + STAGES * (BM + BN) * ROW_BYTES, warpgroup);
    const int first_row = warpgroup * R::PIECES * 64;
    Slot<STAGES> slot;
    int before = 0;
    float sum[R::PIECES][BN / 2];
    unsigned pairs[BOXES][16];  // results of the tile before
    BlockTile of_pairs = {};    // no columns: there are none

    const auto store_box = [&](int box) {
      boxes.store(pairs[box], of_pairs.row + first_row + box / ACROSS * 64,
                  of_pairs.col + box % ACROSS * 64);
    };

    for (int index = blockIdx.x / 2; index < whole || last.columns; index += gridDim.x / 2) {
      const bool shared = index >= whole;
      const int count = shared ? half : steps;
#pragma unroll  // pairs are in registers: their numbers must be constants
      for (int step = 0; step < BOXES; ++step) {
        start_step<Scalar, BM, BN, BN>(sum, ring, slot, base, first_row, step > 0);
        if (of_pairs.columns) store_box(step);
        end_step<2>(ring, slot, before, step == 0);
      }
#pragma unroll 1
      for (int step = BOXES; step < count; ++step) {
        start_step<Scalar, BM, BN, BN>(sum, ring, slot, base, first_row, true);
        end_step<2>(ring, slot, before, false);
      }
      await_multiplications<0>();
      free_stage<2>(ring.freed[before]);
      of_pairs = {};
      if (shared) {
        add_parts<Scalar, R::CONSUMERS, 2, 1>(sum, base, part, 0, warpgroup, C, last.row, last.col,
                                              M, N);
        break;
      }
#pragma unroll
      for (int i = 0; i < BOXES * 16; ++i) {
        const float* const from = &sum[i / (ACROSS * 16)][i % (ACROSS * 16) * 2];
        pairs[i / 16][i % 16] = pack<Scalar>(from[0], from[1]);
      }
      of_pairs = tiles[index];
    }
    if (of_pairs.columns) {
#pragma unroll
      for (int box = 0; box < BOXES; ++box) store_box(box);
    }
    boxes.finish();
  }
}
