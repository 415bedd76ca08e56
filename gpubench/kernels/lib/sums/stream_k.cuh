// stream_k: which block computes which steps of which tiles of C (Osama et al., "Stream-K", 2023).
// `packed_panels` introduces it.
//
// A step is BK values of k of one tile. The number of blocks is what the GPU holds at once, and
// each block computes one tile after the other. Whole tiles alone rarely divide evenly: 12 tiles
// take 5 blocks three rounds, and in the last round three blocks are idle.
//
// So the steps of the first `streamed` tiles (one round, and the remainder of the division) are cut
// into equal ranges, one per block. The other tiles are taken whole, the same number by each block.
// In this example 7 tiles of 5 steps are streamed (35 steps, 7 per block), and tiles 7 to 11 are
// taken whole. Time goes from left to right. A digit is a step of that tile:
//
//     range 0 | 0 0 0 0 0 1 1 | 11 11 11 11 11     waits for range 1, adds its sums to tile 1
//     range 1 | 1 1 1 2 2 2 2 | 10 10 10 10 10     waits for range 2, adds its sums to tile 2
//     range 2 | 2 3 3 3 3 3 4 |  9  9  9  9  9     waits for range 3, adds its sums to tile 4
//     range 3 | 4 4 4 4 5 5 5 |  8  8  8  8  8     waits for range 4, adds its sums to tile 5
//     range 4 | 5 5 6 6 6 6 6 |  7  7  7  7  7
//              ^
//              a range that starts inside a tile first writes that tile's sums to the workspace and
//              sets its flag, long before the previous range ends and reads them
//
// The block that has a tile's first step completes the tile. Ranges are longer than a tile, so at
// most two blocks share a tile. With splits of K there are fewer tiles than blocks, and the block
// adds up the sums of several ranges in their order. So the result is the same in every run.

#pragma once

#include "../tma/ptx.cuh"
#include "../tiles/rasterization.cuh"

// Consecutive steps of one tile.
struct Work {
  Origin origin;
  int first;
  int steps;  // 0: nothing left
};

template <int BM, int BN>
struct StreamK {
  int M, N;
  int streamed;  // tiles whose steps are cut into ranges
  int steps;     // of a tile

  // A block waits for the ranges after its own range. Blocks start in the order of their numbers,
  // so the last block has the first range: it waits only for blocks that started before it.
  __device__ __forceinline__ int range() const { return gridDim.x - 1 - blockIdx.x; }
  // The first step of a range, counted over all streamed tiles.
  __device__ __forceinline__ int begin(int range) const {
    return static_cast<long long>(streamed) * steps * range / gridDim.x;
  }
  // This block's work number `index`, from 0.
  __device__ __forceinline__ Work work(int index) const {
    const int from = begin(range());
    const int to = begin(range() + 1);
    const int count = from < to ? (to - 1) / steps - from / steps + 1 : 0;
    if (index < count) {
      const int tile = from / steps + index;
      const int low = max(from - tile * steps, 0);
      return {rasterize<BM, BN>(tile, M, N), low, min(to - tile * steps, steps) - low};
    }
    const long long tiles = static_cast<long long>((M + BM - 1) / BM) * ((N + BN - 1) / BN);
    const long long tile =
        streamed + blockIdx.x + (index - count) * static_cast<long long>(gridDim.x);
    if (tile >= tiles) return {};
    return {rasterize<BM, BN>(tile, M, N), 0, steps};
  }
};

// A block's steps in order, across its tiles.
struct Cursor {
  int index;
  int step;
  Work work;

  template <typename Scheduler>
  __device__ __forceinline__ void advance(const Scheduler& scheduler) {
    if (++step == work.steps) {
      step = 0;
      work = scheduler.work(++index);
    }
  }
};

// Sets the flag with release semantics: a thread that acquires it sees what was written before.
__device__ __forceinline__ void store_release(unsigned* flag) {
#ifndef __CUDACC__
  __atomic_store_n(flag, 1u, __ATOMIC_RELEASE);
#else
  PTX("st.release.gpu.global.u32 [%0], 1;", "l"(flag));
#endif
}

// Loads the flag with acquire semantics until it is set.
__device__ __forceinline__ void wait_acquire(const unsigned* flag) {
#ifndef __CUDACC__
  on_cpu::wait_acquire(flag);
#else
  unsigned set;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(set) : "l"(flag) : "memory");
  } while (!set);
#endif
}
