// fitted_tile: tiles of nearly any size. `wgmma_fitted` introduces them.
//
// An instruction multiplies 64 rows of its first operand by a multiple of 8 columns of its second
// operand, up to 256. If these are A and B, a tile has 64, 128 or more rows, and any multiple of 16
// columns. If they are Bᵀ and Aᵀ, the instruction computes a part of Cᵀ = Bᵀ·Aᵀ. We call this
// transposed: a tile has 64, 128 or more columns, and any multiple of 8 rows. Shared memory is the
// same in both forms, and transposed sums are turned on their way to C.
//
// One warp requests tiles, and one to three warpgroups multiply. `setmaxnreg`, which moves
// registers to these warpgroups, needs a whole warpgroup that fetches. If the sums leave enough
// registers, the block has only one warp that fetches. Results leave through the free ring.

#pragma once

#include "cluster_gemm.cuh"
#include "cluster_sums.cuh"

constexpr size_t HALF_L2_BYTES = 25'000'000;  // of an H100

// How a block is divided: each warpgroup that multiplies has PIECES of 64 rows. If BN is a multiple
// of 64, the problem is transposed, and pieces have 64 columns.
template <int BM, int BN>
struct FittedTile {
  static constexpr bool TRANSPOSED = BN % 64 == 0;
  static_assert(BN % 64 == 0 || BM % 64 == 0, "rows or columns come by 64");
  static constexpr int BY_64 = TRANSPOSED ? BN : BM;
  static constexpr int CONSUMERS = BY_64 == 64 ? 1 : BY_64 % 192 == 0 ? 3 : 2;
  static constexpr int PIECES = BY_64 / 64 / CONSUMERS;
  static constexpr int SUMS = (TRANSPOSED ? BM : BN) / 2;  // of a thread in a piece
  static constexpr bool MOVES_REGISTERS = PIECES * SUMS > (CONSUMERS == 3 ? 64 : 128);
  static constexpr int THREADS = 128 * CONSUMERS + (MOVES_REGISTERS ? 128 : 32);
  // Registers of a thread. Their sum over the block is at most what the block starts with.
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 24;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : 240;
  // The last of B's parts of 64 columns may be narrower, and takes as much room as the others.
  static constexpr int STAGE_BYTES = (BM + (BN + 63) / 64 * 64) * ROW_BYTES;
};

// Starts to multiply a step for a warpgroup's pieces, and commits the group.
template <typename Scalar, int BM, int BN, int PIECES, int SUMS>
__device__ __forceinline__ void
start_fitted(Sum<Scalar> (&sum)[PIECES][SUMS], unsigned stage, int warpgroup, bool add) {
  wgmma_fence();
  constexpr bool TRANSPOSED = FittedTile<BM, BN>::TRANSPOSED;
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const int piece = warpgroup * PIECES + p;  // of the rows of A, or of the columns of B
#pragma unroll
    for (int k = 0; k < ROW_BYTES / 32; ++k) {
      const unsigned a = stage + (TRANSPOSED ? 0 : piece * 64) * ROW_BYTES;
      const unsigned b = stage + (BM + (TRANSPOSED ? piece * 64 : 0)) * ROW_BYTES;
      multiply_async<Scalar, TRANSPOSED ? BM : BN, TRANSPOSED>(
          sum[p], TRANSPOSED ? part_of_b<Scalar>(b, k) : part_of_a(a, k),
          TRANSPOSED ? part_of_a(a, k) : part_of_b<Scalar>(b, k), add || k > 0);
    }
  }
  commit_multiplications();
}

// C, and where a block's tile begins.
template <typename Scalar>
struct Results {
  Scalar* C;
  int M, N;
  int row, col;
};

// Computes the only tile of a block, or its part of K of a tile. A warp fetches, and warpgroups
// multiply. Each warpgroup that multiplies first calls `prepare` with its number and its tile. At
// the end it calls `leave` with its sums, the address of the free ring, its number, where its
// results go, the ring, and the slot of the tile's first further step.
template <typename Scalar, int BM, int BN, int BK, int STAGES, bool PDL, typename Tiles,
          typename Map, typename Prepare, typename Leave>
__device__ __forceinline__ void
compute_tile_of(const Tiles& tiles, unsigned char* stages, Scalar* C, int M, int N, int K,
                Map a_map, Map b_map, Map rest_map, Prepare prepare, Leave leave) {
  using T = FittedTile<BM, BN>;
  constexpr int BLOCKS = Tiles::BLOCKS, FURTHER_STEPS = Tiles::FURTHER_STEPS;
  __shared__ Ring<STAGES> ring;

  const int warpgroup = warpgroup_index();
  const auto& rank = tiles.rank;
  const BlockTile tile = tiles[blockIdx.x / Tiles::CLUSTER];
  // Further steps come before the last of at least two steps. Steps beyond K multiply zeros.
  const int all_steps = max((K + BK - 1) / BK, FURTHER_STEPS > 0 ? 2 : 0);
  const StepsOfPart steps(all_steps, rank.part, Tiles::CLUSTER / BLOCKS);
  if constexpr (PDL) start_next_launch();

  if (warpgroup == T::CONSUMERS) {
    if constexpr (T::MOVES_REGISTERS) lower_registers<T::PRODUCER_REGISTERS>();
    if (threadIdx.x % 128 >= 32) return;  // a warp fetches
    // B leaves the L2 cache first if it is read once and exceeds half of the cache. Other copies
    // name no policy: products take longer with EVICT_NORMAL.
    constexpr size_t ITEM_BYTES = IS_8_BITS<Scalar> ? 1 : 2;
    const auto fetch = [&](auto... policy) {
      produce<Blocks::END, BM, BN, BK, BK, IS_8_BITS<Scalar>>(
          ring, T::CONSUMERS * BLOCKS, stages, tiles, steps.first, steps.count, a_map, b_map,
          rest_map, policy...);
    };
    if (M <= BM * Tiles::DOWN && ITEM_BYTES * N * K > HALF_L2_BYTES) {
      fetch(EVICT_FIRST);
    } else {
      fetch();
    }
  } else {
    if constexpr (T::MOVES_REGISTERS) raise_registers<T::CONSUMER_REGISTERS>();
    meet_cluster();
    prepare(warpgroup, tile);
    const unsigned base = shared_address(stages);
    Sum<Scalar> sum[T::PIECES][T::SUMS];
    Slot<STAGES> slot, further;
    int left = steps.count;
    multiply_steps<BLOCKS>(ring, slot, steps.count, rank.first, [&](bool add) {
      if constexpr (FURTHER_STEPS > 0) {
        if (--left == 0) further = await_further<FURTHER_STEPS>(ring, slot);
      }
      ring.filled[slot.stage].wait(slot.parity);
      start_fitted<Scalar, BM, BN>(sum, base + slot.stage * T::STAGE_BYTES, warpgroup, add);
    });
    leave(sum, base, warpgroup,
          Results<Output<Scalar>>{reinterpret_cast<Output<Scalar>*>(C), M, N, tile.row, tile.col},
          ring, further);
  }
}

// `compute_tile_of` without further steps: `leave` gets the block's rank, but no ring and no slot.
template <typename Scalar, int BM, int BN, int BK, int STAGES, int SPLITS, int CM, int CN,
          int GROUP, bool PDL, typename Map, typename Leave>
__device__ __forceinline__ void
compute_tile(unsigned char* stages, Scalar* C, int M, int N, int K, Map a_map, Map b_map,
             Map rest_map, Leave leave) {
  const ClusterTiles<BM, BN, CM, CN, GROUP, SPLITS> tiles(M, N);
  compute_tile_of<Scalar, BM, BN, BK, STAGES, PDL>(
      tiles, stages, C, M, N, K, a_map, b_map, rest_map, [](int, const BlockTile&) {},
      [&](auto& sum, unsigned base, int warpgroup, const auto& to, auto&, const auto&) {
        leave(sum, base, tiles.rank, warpgroup, to);
      });
}

template <int CONSUMERS>
__device__ __forceinline__ void synchronize_consumers() {
  PTX("bar.sync 8, %0;", "n"(128 * CONSUMERS));
}

// ---- results

// A unit is eight sums of each thread: 16 columns of a piece's 64 rows or, transposed, 16 rows of
// its 64 columns. Warp w has 16×16 results of a unit: the w-th 16 rows or, transposed, columns.
constexpr int UNIT_SUMS = 8;
constexpr int UNIT = 16;

// Row, and half of this row, of the 16 bytes that a lane names in its warp's 16 rows of 16 columns.
template <bool TRANSPOSED>
__host__ __device__ constexpr int unit_row(int lane) {
  return TRANSPOSED ? lane / 16 * 8 + lane % 8 : lane % 16;
}
template <bool TRANSPOSED>
__host__ __device__ constexpr int unit_half(int lane) {
  return TRANSPOSED ? lane % 16 / 8 : lane / 16;
}

// The offset of thread t's 16 bytes of a transposed unit in a swizzled box of rows of 64 columns.
__host__ __device__ constexpr int unit_offset(int t, int unit) {
  const int row = unit * UNIT + unit_row<true>(t % 32);
  return row * ROW_BYTES + swizzle(row, t / 32 * 2 + unit_half<true>(t % 32)) * 16;
}

// An epilogue that does nothing. `finish.cuh` has the epilogues of models.
struct Nothing {
  // Reads what the epilogue needs of a tile's columns, from column `col` on.
  __device__ __forceinline__ void begin(int) const {}
  // Replaces SUMS sums of a unit of a piece, and adds the matrices at an address.
  template <int SUMS>
  __device__ __forceinline__ void finish(const float*, int, unsigned) const {}
  // Reads what is added to COUNT units of a warpgroup, from unit FIRST on. A piece has EACH units.
  // `put` writes the matrices of one unit, and returns this lane's address for `finish`.
  template <int FIRST, int COUNT, int EACH>
  struct Added {
    template <typename Results>
    __device__ __forceinline__ Added(const Nothing&, const Results&, int) {}
    __device__ __forceinline__ unsigned put(int, unsigned) const { return 0; }
  };
};

// A unit's sums, rounded to four words.
template <typename Scalar>
__device__ __forceinline__ void round_unit(unsigned (&words)[4], const float* sums) {
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = pack<Scalar>(sums[2 * i], sums[2 * i + 1]);
}

// Stores a warp's 16×16 results of a unit of a piece through 512 bytes of its own shared memory, so
// that each thread stores 16 bytes of a row. N is a multiple of 8.
template <bool TRANSPOSED, typename Scalar>
__device__ __forceinline__ void store_unit(const unsigned (&words)[4], unsigned scratch,
                                           const Results<Scalar>& to, int piece, int unit) {
  const int lane = threadIdx.x % 32;
  put_unit<TRANSPOSED>(scratch + unit_row<TRANSPOSED>(lane) * 32 + unit_half<TRANSPOSED>(lane) * 16,
                       words);
  __syncwarp();
  uint4 whole;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(whole.x), "=r"(whole.y), "=r"(whole.z), "=r"(whole.w)
               : "r"(scratch + lane * 16)
               : "memory");
  const int of_warp = piece * 64 + threadIdx.x % 128 / 32 * 16;
  const int row = to.row + (TRANSPOSED ? unit * UNIT : of_warp) + lane / 2;
  const int col = to.col + (TRANSPOSED ? of_warp : unit * UNIT) + lane % 2 * 8;
  if (row < to.M && col < to.N) {
    reinterpret_cast<uint4*>(to.C)[(static_cast<size_t>(row) * to.N + col) / 8] = whole;
  }
}

// Rounds SUMS transposed sums into a box of rows of 64 columns. The last unit may have 8 rows. What
// is added to the sums of this piece lies in a box at `from`.
template <typename Scalar, int SUMS, typename After = Nothing>
__device__ __forceinline__ void
put_box(unsigned box, float* sum, const After& after = {}, int piece = 0, unsigned from = 0) {
  const int t = threadIdx.x % 128;
#pragma unroll
  for (int unit = 0; unit < SUMS / UNIT_SUMS; ++unit) {
    unsigned words[4];
    after.template finish<UNIT_SUMS>(sum + unit * UNIT_SUMS, piece, from + unit_offset(t, unit));
    round_unit<Scalar>(words, sum + unit * UNIT_SUMS);
    put_unit<true>(box + unit_offset(t, unit), words);
  }
  if constexpr (SUMS % UNIT_SUMS != 0) {
    constexpr int FIRST = SUMS / UNIT_SUMS * UNIT_SUMS;
    constexpr int LEFT = SUMS - FIRST, LAST = SUMS / UNIT_SUMS;
    after.template finish<LEFT>(sum + FIRST, piece, from + unit_offset(t, LAST));
    const unsigned words[2] = {pack<Scalar>(sum[FIRST], sum[FIRST + 1]),
                               pack<Scalar>(sum[FIRST + 2], sum[FIRST + 3])};
    PTX("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};",
        "r"(box + unit_offset(t, LAST)), "r"(words[0]), "r"(words[1]));
  }
}

// Number of boxes of 64 columns of results, by the type of sums: two of 32 columns for ints.
template <typename Number>
constexpr int BOXES = Number(0.5f) == 0 ? 2 : 1;

// `put_box` for ints, in two boxes: warps 0 and 1 have the first 32 columns. A warp writes to all
// banks at once.
template <typename, int SUMS>
__device__ __forceinline__ void
put_box(unsigned boxes, const int* sum, const Nothing&, int, unsigned) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  const unsigned first = boxes + warp / 2 * (2 * SUMS * ROW_BYTES) + lane % 4 * (2 * ROW_BYTES) +
                         swizzle(lane % 4 * 2, warp % 2 * 4 + lane / 16) * 16 + lane % 16 / 4 * 4;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {  // 8 columns further, and a row further, which is swizzled
    PTX("st.shared.b32 [%0], %1;",
        "r"((first ^ (i / 2 % 2 * 32 + i % 2 * 16)) + i / 4 * 8 * ROW_BYTES + i % 2 * ROW_BYTES),
        "r"(sum[i]));
  }
}

// One thread makes the TMA store what `put_box` wrote.
template <typename Number, int SUMS, typename Map>
__device__ __forceinline__ void store_box(const Map& map, unsigned box, int row, int col) {
#pragma unroll
  for (int i = 0; i < BOXES<Number>; ++i) {
    store_by_tma(map, box + i * (2 * SUMS * ROW_BYTES), row, col + i * 32);
  }
  PTX("cp.async.bulk.commit_group;");
}

// `store_box`, called by all threads of a warpgroup.
template <typename Number, int SUMS, typename Map>
__device__ __forceinline__ void leave_box(const Map& map, unsigned box, int row, int col) {
  if (threadIdx.x % 128 == 0) store_box<Number, SUMS>(map, box, row, col);
}

// Stores all sums of a block through the free ring. The TMA stores transposed sums, a box for each
// piece. Threads store other sums, whose last columns would be a narrower box.
template <int BM, int BN, typename Scalar, typename Number, int PIECES, int SUMS, typename Map,
          typename After = Nothing>
__device__ __forceinline__ void
store_through_ring(Number (&sum)[PIECES][SUMS], unsigned ring, const Map& c_map, int warpgroup,
                   const Results<Scalar>& to, const After& after = {}) {
  using T = FittedTile<BM, BN>;
  constexpr int PIECE_BYTES = 2 * SUMS * ROW_BYTES * BOXES<Number>;
  const int t = threadIdx.x % 128;
  const unsigned own = ring + warpgroup * PIECES * PIECE_BYTES;
  synchronize_consumers<T::CONSUMERS>();  // all have read the ring
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    if constexpr (T::TRANSPOSED) {
      put_box<Scalar, SUMS>(own + p * PIECE_BYTES, sum[p], after, p, 0);
    } else {
#pragma unroll
      for (int unit = 0; unit < SUMS / UNIT_SUMS; ++unit) {
        unsigned words[4];
        round_unit<Scalar>(words, sum[p] + unit * UNIT_SUMS);
        store_unit<false>(words, own + ((p * SUMS / UNIT_SUMS + unit) * 4 + t / 32) * 512, to,
                          warpgroup * PIECES + p, unit);
      }
    }
  }
  if constexpr (T::TRANSPOSED) {
    publish_to_tma();
    synchronize_warpgroup(warpgroup);
    if (t != 0) return;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      store_box<Number, SUMS>(c_map, own + p * PIECE_BYTES, to.row,
                              to.col + (warpgroup * PIECES + p) * 64);
    }
    await_stored_boxes();
  }
}
