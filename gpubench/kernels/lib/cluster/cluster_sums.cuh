// cluster_sums: the blocks of a cluster share a tile of C, each with a part of K, and their sums
// meet in distributed shared memory. `wgmma_split_cluster` introduces the parts of K, and
// `dmma_split_cluster` introduces `add_parts`.
//
// Each block leaves its whole tile of sums in its own shared memory. After a barrier of the
// cluster, each block adds up an equal share of the tile's vectors of 16 bytes: it reads them from
// the shared memory of all parts, in the order of the parts, so the result is the same in every
// run. A second barrier keeps every block alive until the others have read its sums.

#pragma once

#include "../tma/ptx.cuh"
#include "../tiles/vector.cuh"

// Steps of K for one of `parts` blocks that share a tile: at least one, even if it is zeros.
struct StepsOfPart {
  int first, count;

  __host__ __device__ constexpr StepsOfPart(int steps, int part, int parts)
      : first((steps > parts ? steps : parts) * part / parts),
        count((steps > parts ? steps : parts) * (part + 1) / parts - first) {}
};

// Returns the address of the same place in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ unsigned remote_address(unsigned address, int rank) {
  unsigned remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}

// Loads 16 bytes of another block's shared memory.
template <typename Number>
__device__ __forceinline__ Vector<Number> load_remote(unsigned address) {
  union {
    float4 bits;
    Vector<Number> vector;
  } both;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(both.bits.x), "=f"(both.bits.y), "=f"(both.bits.z), "=f"(both.bits.w)
               : "r"(address)
               : "memory");
  return both.vector;
}

// Adds up a tile of BM rows of BN sums. Each of the PARTS blocks has left its sums in its own
// shared memory, from `memory` on, with rows PITCH_BYTES apart. `part` is this block's part. Its
// peers are every BLOCKS-th block of the cluster, from `peer` on. THREADS threads call it, thread 0
// first. `store` gets a vector's row, column and sum. The cluster's barriers do not wait for
// threads that have ended. A block that does not share its tile stores its sums alone.
template <int PARTS, int BLOCKS, int BM, int BN, int PITCH_BYTES, int THREADS, typename Number,
          typename Store>
__device__ __forceinline__ void add_parts(unsigned memory, int part, int peer, Store store) {
  constexpr int WIDTH = Vector<Number>::SIZE;
  constexpr int ACROSS = BN / WIDTH;
  constexpr int VECTORS = BM * ACROSS;
  static_assert(BN % WIDTH == 0 && PITCH_BYTES % 16 == 0, "rows of whole vectors");
  unsigned from[PARTS];
  if constexpr (PARTS == 1) {
    PTX("bar.sync 1, %0;", "n"(THREADS));
    from[0] = memory;
  } else {
    PTX("barrier.cluster.arrive.release.aligned;");
    PTX("barrier.cluster.wait.acquire.aligned;");
#pragma unroll
    for (int other = 0; other < PARTS; ++other) {
      from[other] = remote_address(memory, peer + other * BLOCKS);
    }
  }
  constexpr int AT_ONCE = PARTS < 8 ? 8 / PARTS : 1;  // vectors: eight loads hide their latency
  const int end = VECTORS * (part + 1) / PARTS;
#pragma unroll 1
  for (int i = VECTORS * part / PARTS + static_cast<int>(threadIdx.x); i < end;
       i += AT_ONCE * THREADS) {
    Vector<Number> sums[AT_ONCE][PARTS];
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const int at = i + j * THREADS;
      if (at >= end) break;
#pragma unroll
      for (int other = 0; other < PARTS; ++other) {
        sums[j][other] =
            load_remote<Number>(from[other] + at / ACROSS * PITCH_BYTES + at % ACROSS * 16);
      }
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const int at = i + j * THREADS;
      if (at >= end) break;
#pragma unroll
      for (int other = 1; other < PARTS; ++other) {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) sums[j][0].lanes[e] += sums[j][other].lanes[e];
      }
      store(at / ACROSS, at % ACROSS * WIDTH, sums[j][0]);
    }
  }
  if constexpr (PARTS > 1) {
    __syncwarp();
    PTX("barrier.cluster.arrive.relaxed.aligned;");
    PTX("barrier.cluster.wait.aligned;");
  }
}
