// split_sums: the sums of blocks of one cluster that share a tile of C, each with a part of K, meet
// through distributed shared memory. `wgmma_split_cluster` introduces this.
//
// A unit is eight sums of a thread (`fitted_tile.cuh`). Each block completes an equal share of the
// units: it adds the other blocks' sums to its own, always in the order of the parts. It reads them
// from the other blocks' shared memory, where threads leave all sums but those of their own block:
//
//     part 0   own  own  ->1  ->1  ->2  ->2
//     part 1   ->0  ->0  own  own  ->2  ->2       six units, three parts
//     part 2   ->0  ->0  ->1  ->1  own  own
//
// The blocks meet twice: when all sums lie in shared memory, and before any block leaves.

#pragma once

#include "fitted_tile.cuh"

constexpr int UNIT_BYTES = 128 * UNIT_SUMS * 4;  // of a warpgroup

// Number of the first of `units` units that a part completes.
__host__ __device__ constexpr int first_unit(int units, int part, int parts) {
  return units * part / parts;
}

// Offset of thread t's half of a unit, 16 bytes. The threads of a warpgroup lie side by side.
__host__ __device__ constexpr int half_unit_offset(int unit, int half, int t) {
  return unit * UNIT_BYTES + half * (UNIT_BYTES / 2) + t * 16;
}

// Completes and stores the units of part `part`, which is PART or a later part. Sums are in
// registers, so the numbers of units must be constants. `memory` has this warpgroup's units, in the
// free ring, and `peer` is the number in the cluster of the block with part 0.
template <int PART, int PARTS, int BLOCKS, bool TRANSPOSED, typename Scalar, int PIECES, int SUMS,
          typename After>
__device__ __forceinline__ void
complete_part(float (&sum)[PIECES][SUMS], unsigned memory, int part, int peer, int warpgroup,
              const Results<Scalar>& results, const After& after) {
  constexpr int EACH = SUMS / UNIT_SUMS;
  constexpr int FIRST = first_unit(PIECES * EACH, PART, PARTS);
  constexpr int COUNT = first_unit(PIECES * EACH, PART + 1, PARTS) - FIRST;
  if (part == PART) {
    const int t = threadIdx.x % 128;
    const typename After::template Added<FIRST, COUNT, EACH> added(after, results,
                                                                   warpgroup * PIECES);
#pragma unroll
    for (int other = 0; other < PARTS; ++other) {
      if (other == PART) continue;
      const unsigned from = remote_address(memory, peer + other * BLOCKS);
      Vector<float> halves[2 * COUNT + 1];
#pragma unroll
      for (int i = 0; i < 2 * COUNT; ++i) {
        halves[i] = load_remote<float>(from + half_unit_offset(FIRST + i / 2, i % 2, t));
      }
#pragma unroll
      for (int i = 0; i < 2 * COUNT; ++i) {
        const int unit = FIRST + i / 2;
        float* const to = sum[unit / EACH] + unit % EACH * UNIT_SUMS + i % 2 * 4;
#pragma unroll
        for (int e = 0; e < 4; ++e) to[e] += halves[i].lanes[e];
      }
    }
    if constexpr (PARTS > 1) PTX("barrier.cluster.arrive.relaxed.aligned;");
#pragma unroll
    for (int unit = FIRST; unit < FIRST + COUNT; ++unit) {
      // This block's own units are stored through their places, which no block reads.
      unsigned words[4];
      float* const sums = sum[unit / EACH] + unit % EACH * UNIT_SUMS;
      const unsigned scratch = memory + unit * UNIT_BYTES + t / 32 * 512;
      after.template finish<UNIT_SUMS>(sums, unit / EACH, added.put(unit, scratch));
      round_unit<Scalar>(words, sums);
      store_unit<TRANSPOSED>(words, scratch, results,
                             warpgroup * PIECES + unit / EACH, unit % EACH);
    }
  } else if constexpr (PART + 1 < PARTS) {
    complete_part<PART + 1, PARTS, BLOCKS, TRANSPOSED>(sum, memory, part, peer, warpgroup, results,
                                                       after);
  }
}

// Adds up the sums of the PARTS blocks that share a tile, and stores the tile. `memory` is the free
// ring, at least BM·BN·4 bytes. The cluster's barriers do not wait for threads that have ended. A
// block that does not share its tile stores its sums alone.
template <int BM, int BN, int CM, int CN, int PARTS, typename Scalar, int PIECES, int SUMS,
          typename After = Nothing>
__device__ __forceinline__ void
add_units(float (&sum)[PIECES][SUMS], unsigned memory, const Rank<CM, CN, PARTS>& rank,
          int warpgroup, const Results<Scalar>& to, const After& after = {}) {
  using T = FittedTile<BM, BN>;
  constexpr int EACH = SUMS / UNIT_SUMS;
  constexpr int UNITS = PIECES * EACH;
  const int peer = rank.peer();
  const unsigned own = memory + warpgroup * UNITS * UNIT_BYTES;
  const int low = first_unit(UNITS, rank.part, PARTS);
  const int high = first_unit(UNITS, rank.part + 1, PARTS);

  synchronize_consumers<T::CONSUMERS>();  // all have read the ring
#pragma unroll
  for (int unit = 0; unit < UNITS; ++unit) {
    if (unit >= low && unit < high) continue;
    const float* const from = sum[unit / EACH] + unit % EACH * UNIT_SUMS;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      PTX("st.shared.v4.f32 [%0], {%1, %2, %3, %4};",
          "r"(own + half_unit_offset(unit, half, threadIdx.x % 128)), "f"(from[4 * half]),
          "f"(from[4 * half + 1]), "f"(from[4 * half + 2]), "f"(from[4 * half + 3]));
    }
  }
  if constexpr (PARTS > 1) {
    PTX("barrier.cluster.arrive.release.aligned;");
    PTX("barrier.cluster.wait.acquire.aligned;");
  }
  complete_part<0, PARTS, CM * CN, T::TRANSPOSED>(sum, own, rank.part, peer, warpgroup, to,
                                                   after);
  if constexpr (PARTS > 1) PTX("barrier.cluster.wait.aligned;");
}
