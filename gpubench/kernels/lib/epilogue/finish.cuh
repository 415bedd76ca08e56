// finish: the epilogue of a transposed tile (`fitted_tile.cuh`): the bias of each column, an
// activation, and a residual. `wgmma_epilogue` introduces it.
//
// A thread has two columns of a piece, so it keeps two numbers of the bias. A residual comes
// through the ring like operands do, by boxes of 64 columns, as further steps of the tile.
// `ldmatrix` reads a box in the order in which `stmatrix` writes results.

#pragma once

#include "../cluster/split_sums.cuh"
#include "activation.cuh"

// The two halves of a word as numbers.
template <typename Scalar>
__device__ __forceinline__ float low_half(unsigned word) {
  if constexpr (IS_BFLOAT16<Scalar>) return __uint_as_float(word << 16);
  float number;
  asm volatile("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(static_cast<unsigned short>(word)));
  return number;
}
template <typename Scalar>
__device__ __forceinline__ float high_half(unsigned word) {
  if constexpr (IS_BFLOAT16<Scalar>) return __uint_as_float(word & 0xFFFF0000);
  return low_half<Scalar>(word >> 16);
}

// Adds matrices of 8×8 in the order of `put_unit`: four to eight sums of a thread, or two to four
// sums. A lane names 16 bytes.
template <typename Scalar, int SUMS>
__device__ __forceinline__ void add_matrices(float* sum, unsigned address) {
  unsigned words[SUMS / 2];
  if constexpr (SUMS == UNIT_SUMS) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "r"(address)
                 : "memory");
  }
#pragma unroll
  for (int i = 0; i < SUMS / 2; ++i) {
    sum[2 * i] += low_half<Scalar>(words[i]);
    sum[2 * i + 1] += high_half<Scalar>(words[i]);
  }
}

// The bias of PIECES pieces of 64 columns, the activation, and the residual, with the functions of
// `Nothing`. Only `Added` reads `residual`.
template <typename Scalar, typename Act, bool HAS_RESIDUAL, int PIECES>
struct Finish {
  const Scalar* bias;
  const Scalar* residual;
  int N;
  unsigned of_columns[PIECES];  // two numbers of 16 bits

  __device__ __forceinline__ Finish(const Scalar* bias, const Scalar* residual, int N)
      : bias(bias), residual(residual), N(N) {}

  __device__ __forceinline__ void begin(int col) {
    const auto* const bits = reinterpret_cast<const unsigned short*>(bias);
    col += threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      const int at = col + p * 64;
      const unsigned low = at < N ? bits[at] : 0, high = at + 8 < N ? bits[at + 8] : 0;
      of_columns[p] = low | high << 16;
    }
  }
  template <int SUMS>
  __device__ __forceinline__ void finish(float* sum, int piece, unsigned from) const {
    const float first = low_half<Scalar>(of_columns[piece]);
    const float second = high_half<Scalar>(of_columns[piece]);  // eight columns further
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      asm volatile("" : "+f"(sum[i])::"memory");  // stays behind the wait for the sum
      sum[i] = Act()(sum[i] + (i / 2 % 2 ? second : first));
    }
    if constexpr (HAS_RESIDUAL) add_matrices<Scalar, SUMS>(sum, from);
    __syncwarp();  // results may replace the residual, and the compiler starts no other unit before
  }

  // A thread reads 16 bytes of a row of each unit, and writes them into 512 bytes of its warp: the
  // reverse of `store_unit`.
  template <int FIRST, int COUNT, int EACH>
  struct Added {
    uint4 rows[COUNT + 1];

    __device__ __forceinline__ Added(const Finish& finish, const Results<Scalar>& to, int piece) {
      if constexpr (!HAS_RESIDUAL) return;
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        const int unit = FIRST + i;
        const int of_warp = (piece + unit / EACH) * 64 + threadIdx.x % 128 / 32 * 16;
        const int row = to.row + unit % EACH * UNIT + lane / 2;
        const int col = to.col + of_warp + lane % 2 * 8;
        rows[i] = uint4{0, 0, 0, 0};
        if (row < to.M && col < to.N) {
          const size_t place = static_cast<size_t>(row) * to.N + col;
          rows[i] = reinterpret_cast<const uint4*>(finish.residual)[place / 8];
        }
      }
    }
    __device__ __forceinline__ unsigned put(int unit, unsigned scratch) const {
      if constexpr (!HAS_RESIDUAL) return 0;
      const int lane = threadIdx.x % 32;
      const uint4& own = rows[unit - FIRST];
      PTX("st.shared.v4.u32 [%0], {%1, %2, %3, %4};", "r"(scratch + lane * 16), "r"(own.x),
          "r"(own.y), "r"(own.z), "r"(own.w));
      __syncwarp();
      return scratch + unit_row<true>(lane) * 32 + unit_half<true>(lane) * 16;
    }
  };
};

// Tiles whose residual comes through the ring, in boxes of BM rows of 64 columns.
template <typename Tiles, int BM, int BN>
struct TilesWithResidual : Tiles {
  static constexpr int BOXES = BN / 64;
  static constexpr int BOXES_OF_STAGE = (BM + BN) / BM < BOXES ? (BM + BN) / BM : BOXES;
  static constexpr int FURTHER_STEPS = (BOXES + BOXES_OF_STAGE - 1) / BOXES_OF_STAGE;
  static constexpr int BOX_BYTES = BM * ROW_BYTES;
  const CUtensorMap* map;

  __device__ __forceinline__ TilesWithResidual(int M, int N, const CUtensorMap* map)
      : Tiles(M, N), map(map) {}

  __device__ __forceinline__ void fetch_further(Mbarrier& filled, unsigned char* stage,
                                                const BlockTile& tile, int step) const {
    const int first = step * BOXES_OF_STAGE;
    const int count = min(BOXES_OF_STAGE, BOXES - first);
    filled.arrive_expect_bytes(count * BOX_BYTES);
    for (int i = 0; i < count; ++i) {
      filled.copy_box(stage + i * BOX_BYTES, map, tile.row, tile.col + (first + i) * 64);
    }
  }
  // Offset of a piece's box in its stage.
  static __device__ __forceinline__ int box(int piece) {
    return piece % BOXES_OF_STAGE * BOX_BYTES;
  }
  static __device__ __forceinline__ bool is_last_of_stage(int piece) {
    return (piece + 1) % BOXES_OF_STAGE == 0 || piece + 1 == BOXES;
  }
};

// Stores all sums of a block as `store_through_ring` does, through the stages that have the
// residual, from the slot `further` on.
template <int BM, int BN, typename Scalar, typename Tiles, typename After, int STAGES, int PIECES,
          int SUMS>
__device__ __forceinline__ void
store_through_residual(float (&sum)[PIECES][SUMS], unsigned base, Ring<STAGES>& ring,
                       Slot<STAGES> further, const Tiles& tiles, const CUtensorMap* c_map,
                       int warpgroup, const Results<Scalar>& to, const After& after) {
  unsigned boxes[PIECES];
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const int piece = warpgroup * PIECES + p;
    Slot<STAGES> slot = further;
    slot.skip(piece / Tiles::BOXES_OF_STAGE);
    boxes[p] = base + slot.stage * FittedTile<BM, BN>::STAGE_BYTES + Tiles::box(piece);
    put_box<Scalar, SUMS>(boxes[p], sum[p], after, p, boxes[p]);
  }
  publish_to_tma();
  synchronize_warpgroup(warpgroup);
#pragma unroll
  for (int i = 0; i < Tiles::FURTHER_STEPS; ++i, further.advance()) {
    free_stage<Tiles::BLOCKS>(ring.freed[further.stage], tiles.rank.first);
  }
  if (threadIdx.x % 128 != 0) return;
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    store_box<float, SUMS>(c_map, boxes[p], to.row, to.col + (warpgroup * PIECES + p) * 64);
  }
  await_stored_boxes();
}
