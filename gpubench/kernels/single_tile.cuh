// single_tile: what kernels share whose blocks compute one tile each, of any size, and then end.
//
// One warp requests tiles, one to three warpgroups multiply. Up to 128 sums a thread fit without
// moving registers between roles, so the block can do without the three idle warps that a warpgroup
// of its own brings along. (With three warpgroups that multiply, up to 64 sums.) When all steps have been multiplied, the ring is free, and results leave
// through it: no shared memory is set aside for them.

#pragma once

#include "cluster_tiles.cuh"

// How a block of BM×BN is divided. Three warpgroups multiply where there are 192 rows.
template <int BM, int BN>
struct SingleTile {
  static constexpr int CONSUMERS = BM == 64 ? 1 : BM == 192 ? 3 : 2;
  static constexpr int PIECES = BM / 64 / CONSUMERS;  // of 64 rows each, by a consumer
  static constexpr bool MOVES_REGISTERS = PIECES * BN / 2 > (CONSUMERS == 3 ? 64 : 128);
  static constexpr int THREADS = 128 * CONSUMERS + (MOVES_REGISTERS ? 128 : 32);
  // Of 65,536 registers; the sum over the block is at most what it starts with.
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 24;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : 240;
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
    fetch_step<BM, BN, CM, CN, STEP, STEP>(ring.filled[slot.stage],
                                           stages + slot.stage * (BM + BN) * ROW_BYTES, rank, tile,
                                           (steps.first + step) * STEP, a_map, b_map);
  }
  if constexpr (CM * CN > 1) await_all_freed(ring, slot);
}

// The warpgroups that multiply have come here.
template <int CONSUMERS>
__device__ __forceinline__ void synchronize_consumers() {
  asm volatile("bar.sync 8, %0;" ::"n"(128 * CONSUMERS) : "memory");
}

// All sums of a block through the free ring: a warpgroup puts down all its boxes, and one of its
// threads has the TMA store them.
template <typename Scalar, int CONSUMERS, int PIECES, int SUMS>
__device__ __forceinline__ void store_through_ring(const Sum<Scalar> (&sum)[PIECES][SUMS],
                                                   unsigned ring, const CUtensorMap* c_map,
                                                   int warpgroup, int row, int col) {
  constexpr int ACROSS = SUMS / BOX_SUMS<Scalar>;
  const unsigned boxes = ring + warpgroup * PIECES * ACROSS * ResultBoxes::BYTES;
  synchronize_consumers<CONSUMERS>();  // nobody reads the ring any more
#pragma unroll
  for (int box = 0; box < PIECES * ACROSS; ++box) {
    unsigned words[16];
    take_results<Scalar>(words, sum[box / ACROSS] + box % ACROSS * BOX_SUMS<Scalar>);
    ResultBoxes::store_pairs(boxes + box * ResultBoxes::BYTES, words);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
  if (threadIdx.x % 128 != 0) return;
#pragma unroll
  for (int box = 0; box < PIECES * ACROSS; ++box) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                     c_map),
                 "r"(col + box % ACROSS * BOX_COLUMNS<Scalar>),
                 "r"(row + (warpgroup * PIECES + box / ACROSS) * 64),
                 "r"(boxes + box * ResultBoxes::BYTES)
                 : "memory");
  }
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
