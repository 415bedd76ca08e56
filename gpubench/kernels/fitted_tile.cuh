// fitted_tile: tiles whose rows are multiples of 16, so that there is one for nearly every shape, and
// a block for every tile.
//
// An instruction multiplies 64 rows of its first operand by 8 to 256 columns of its second one. The
// other kernels give it A and B, so rows of a tile come by 64, and columns too, as B's boxes have 64.
// Here it gets the transposed problem, Cᵀ = Bᵀ·Aᵀ: 64 columns of C at a time, and any multiple of 8 rows
// (16 here). In shared memory A and B lie as before, and results are transposed on their way back.
//
// One warp requests tiles, one to three warpgroups multiply. Where sums leave enough registers, they
// are not moved between roles, and the block does without the three idle warps that a warpgroup of its
// own brings along. When all steps have been multiplied the ring is free, and results leave through it.

#pragma once

#include "cluster_tiles.cuh"

// How the BN columns of a block are divided: each warpgroup that multiplies has PIECES of 64.
template <int BM, int BN>
struct FittedTile {
  static constexpr int CONSUMERS = BN == 64 ? 1 : BN % 192 == 0 ? 3 : 2;
  static constexpr int PIECES = BN / 64 / CONSUMERS;
  static constexpr int SUMS = BM / 2;  // of a thread in a piece
  static constexpr bool MOVES_REGISTERS = PIECES * SUMS > (CONSUMERS == 3 ? 64 : 128);
  static constexpr int THREADS = 128 * CONSUMERS + (MOVES_REGISTERS ? 128 : 32);
  // Of 65,536 registers; the sum over the block is at most what it starts with.
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 24;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : 240;
  static constexpr int STAGE_BYTES = (BM + BN) * ROW_BYTES;
};

// Steps of K for one of PARTS blocks that share a tile. Each has at least one; where K is shorter, the
// TMA brings zeros.
struct StepsOfPart {
  int first;
  int count;

  __host__ __device__ constexpr StepsOfPart(int steps, int part, int parts)
      : first(begin(steps, part, parts)),
        count(begin(steps, part + 1, parts) - begin(steps, part, parts)) {}

 private:
  __host__ __device__ static constexpr int begin(int steps, int part, int parts) {
    return (steps > parts ? steps : parts) * part / parts;
  }
};

// Requests a step: BM rows of A, which the CN blocks of a row share, and BN columns of B, of which the
// CM blocks of a column fetch some values of k each.
template <int BM, int BN, int CM, int CN, int PARTS>
__device__ __forceinline__ void fetch_fitted(Mbarrier& filled, unsigned char* stage,
                                             const Rank<CM, CN, PARTS>& rank, const BlockTile& tile,
                                             int k, const CUtensorMap* a_map,
                                             const CUtensorMap* b_map) {
  constexpr unsigned short ROW = (1 << CN) - 1;
  constexpr unsigned short COLUMN = CM == 1 ? 1 : 1 | 1 << CN;
  static_assert(CM <= 2, "COLUMN has two bits");
  filled.arrive_expect_bytes((BM + BN) * ROW_BYTES);
  if constexpr (CN == 1) {
    filled.copy_box(stage, a_map, tile.row, k);
  } else {
    const int row = rank.col * (BM / CN);
    multicast_box(filled, stage + row * ROW_BYTES, a_map, tile.row + row, k,
                  ROW << (rank.first + rank.row * CN));
  }
#pragma unroll
  for (int i = 0; i < BN / 64; ++i) {
    unsigned char* const to = stage + (BM + i * STEP) * ROW_BYTES;
    if constexpr (CM == 1) {
      filled.copy_box(to, b_map, k, tile.col + i * 64);
    } else {
      const int first = rank.row * (STEP / CM);
      multicast_box(filled, to + first * ROW_BYTES, b_map, k + first, tile.col + i * 64,
                    COLUMN << (rank.first + rank.col));
    }
  }
}

// The producer's work, by one thread: its steps of the only tile.
template <int BM, int BN, int CM, int CN, int PARTS, int STAGES>
__device__ __forceinline__ void produce_steps(Ring<STAGES>& ring, unsigned char* stages,
                                              const Rank<CM, CN, PARTS>& rank,
                                              const BlockTile& tile, const StepsOfPart& steps,
                                              const CUtensorMap* a_map, const CUtensorMap* b_map) {
  Slot<STAGES> slot;
#pragma unroll 1
  for (int step = 0; step < steps.count; ++step, slot.advance()) {
    ring.freed[slot.stage].wait(slot.parity ^ 1);
    fetch_fitted<BM, BN>(ring.filled[slot.stage],
                         stages + slot.stage * FittedTile<BM, BN>::STAGE_BYTES, rank, tile,
                         (steps.first + step) * STEP, a_map, b_map);
  }
  if constexpr (CM * CN > 1) await_all_freed(ring, slot);
}

// Starts to multiply a step for a warpgroup's pieces; the group is committed.
template <typename Scalar, int BM, int BN, int PIECES, int SUMS>
__device__ __forceinline__ void start_fitted(Sum<Scalar> (&sum)[PIECES][SUMS], unsigned stage,
                                             int warpgroup, bool add) {
  wgmma_fence();
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const unsigned b = stage + (BM + (warpgroup * PIECES + p) * STEP) * ROW_BYTES;
#pragma unroll
    for (int k = 0; k < ROW_BYTES / 32; ++k) {
      multiply_async<Scalar, BM, true>(sum[p], b_descriptor(b) + k * B_NEXT,
                                       a_descriptor(stage) + k * A_NEXT, add || k > 0);
    }
  }
  commit_multiplications();
}

// All steps of a warpgroup. Two are under way at a time, so a stage is freed one step late, in the
// blocks of this part of the cluster.
template <typename Scalar, int BM, int BN, int BLOCKS, int PIECES, int SUMS, int STAGES>
__device__ __forceinline__ void multiply_fitted(Sum<Scalar> (&sum)[PIECES][SUMS],
                                                Ring<STAGES>& ring, unsigned stages, int warpgroup,
                                                int steps, int first_block) {
  Slot<STAGES> slot;
  int before = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step, slot.advance()) {
    ring.filled[slot.stage].wait(slot.parity);
    start_fitted<Scalar, BM, BN>(sum, stages + slot.stage * FittedTile<BM, BN>::STAGE_BYTES,
                                 warpgroup, step > 0);
    await_multiplications<1>();
    if (step > 0) free_stage<BLOCKS>(ring.freed[before], first_block);
    before = slot.stage;
  }
  await_multiplications<0>();
  free_stage<BLOCKS>(ring.freed[before], first_block);
}

// The warpgroups that multiply have come here.
template <int CONSUMERS>
__device__ __forceinline__ void synchronize_consumers() {
  asm volatile("bar.sync 8, %0;" ::"n"(128 * CONSUMERS) : "memory");
}

// ---- results

// A unit is 16 rows of C and a warpgroup's 64 columns: eight sums of a thread. Of these, thread t has
// rows 2(t%4), 2(t%4) + 1 in columns 16(t/32) + (t%32)/4 and 8 further, then the same 8 rows below.
constexpr int UNIT_SUMS = 8;
constexpr int UNIT_ROWS = 16;

// Where thread t has a transposing `stmatrix` put 16 bytes of its warp's 16 rows of 16 columns: the row,
// and which half of the columns.
__host__ __device__ constexpr int unit_row(int t) { return t % 32 / 16 * 8 + t % 8; }
__host__ __device__ constexpr int unit_half(int t) { return t % 16 / 8; }

// Where thread t puts 16 bytes of a unit in a box of rows of 64 columns, swizzled as the TMA reads it.
__host__ __device__ constexpr int unit_offset(int t, int unit) {
  const int row = unit * UNIT_ROWS + unit_row(t);
  return row * ROW_BYTES + swizzle(row, t / 32 * 2 + unit_half(t)) * 16;
}

template <typename Scalar>
__device__ __forceinline__ void put_unit(unsigned address, const float* sums) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   address),
               "r"(pack<Scalar>(sums[0], sums[1])), "r"(pack<Scalar>(sums[2], sums[3])),
               "r"(pack<Scalar>(sums[4], sums[5])), "r"(pack<Scalar>(sums[6], sums[7]))
               : "memory");
}

// All sums of a block through the free ring: a warpgroup puts down its pieces, and one of its threads
// has the TMA store them.
template <typename Scalar, int BM, int CONSUMERS, int PIECES, int SUMS>
__device__ __forceinline__ void store_through_ring(const float (&sum)[PIECES][SUMS], unsigned ring,
                                                   const CUtensorMap* c_map, int warpgroup, int row,
                                                   int col) {
  const int t = threadIdx.x % 128;
  const unsigned boxes = ring + warpgroup * PIECES * BM * ROW_BYTES;
  synchronize_consumers<CONSUMERS>();  // nobody reads the ring any more
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
#pragma unroll
    for (int unit = 0; unit < SUMS / UNIT_SUMS; ++unit) {
      put_unit<Scalar>(boxes + p * BM * ROW_BYTES + unit_offset(t, unit),
                       sum[p] + unit * UNIT_SUMS);
    }
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
  if (t != 0) return;
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                     c_map),
                 "r"(col + (warpgroup * PIECES + p) * 64), "r"(row), "r"(boxes + p * BM * ROW_BYTES)
                 : "memory");
  }
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
