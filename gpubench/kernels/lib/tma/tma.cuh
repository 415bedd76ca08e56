// tma: bulk copies by the TMA (tensor memory accelerator) and their mbarriers, which `bulk_copies`
// introduces, and launches that overlap, which `packed_panels` introduces. All need compute
// capability 9.0. NVRTC does not have CUDA's own header for them (cuda/barrier).

#pragma once

#include "ptx.cuh"

// A tensor map describes a matrix to the TMA, and the box that one copy takes. The driver encodes
// it on the host, and the kernel gets it by value.
struct alignas(64) CUtensorMap {
  unsigned long long opaque[16];
};

// Policies of the L2 cache, as createpolicy.fractional makes them: evicted first, and as usual.
constexpr unsigned long long EVICT_FIRST = 0x12F0000000000000, EVICT_NORMAL = 0x16F0000000000000;

// A barrier in shared memory. Its phase ends when all threads that it counts have arrived, and all
// bytes that they expect have been copied.
struct Mbarrier {
  unsigned long long state;

#ifndef __CUDACC__  // a host that emulates CUDA
  void init(int arrivals) { on_cpu::mbarrier_init(this, arrivals); }
  void arrive_expect_bytes(unsigned bytes) { on_cpu::mbarrier_arrive_expect_bytes(this, bytes); }
  void copy_bulk(void* to, const void* from, unsigned bytes) {
    on_cpu::copy_bulk(this, to, from, bytes);
  }
  void copy_box(void* to, const CUtensorMap* map, int row, int col) {
    on_cpu::copy_box(this, to, map->opaque, row, col);
  }
  void wait(unsigned parity) { on_cpu::mbarrier_wait(this, parity); }
#else
  __device__ __forceinline__ void init(int arrivals) {
    PTX("mbarrier.init.shared::cta.b64 [%0], %1;", "r"(shared_address(this)), "r"(arrivals));
  }
  // Arrives, and adds `bytes` to the number of bytes that this phase waits for.
  __device__ __forceinline__ void arrive_expect_bytes(unsigned bytes) {
    PTX("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;", "r"(shared_address(this)),
        "r"(bytes));
  }
  // Starts a copy of contiguous bytes.
  __device__ __forceinline__ void copy_bulk(void* to, const void* from, unsigned bytes) {
    PTX("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];",
        "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(this)));
  }
  // Starts a copy of the box at (row, col) of the map's matrix, with zeros outside the matrix.
  __device__ __forceinline__ void copy_box(void* to, const CUtensorMap* map, int row, int col) {
    PTX("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];",
        "r"(shared_address(to)), "l"(map), "r"(col), "r"(row), "r"(shared_address(this)));
  }
  // Waits for the end of the phase with this parity; phases have parities 0, 1, 0, 1, ...
  __device__ __forceinline__ void wait(unsigned parity) {
    PTX("{\n.reg .pred done;\nagain%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again%=;\n}",
        "r"(shared_address(this)), "r"(parity));
  }
#endif
};

// The place of a thread in a ring of stages: the stage, and the parity of its barriers' phases.
template <int STAGES>
struct Slot {
  int stage = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void skip(int steps) {
    stage += steps;
    parity ^= stage / STAGES & 1;
    stage %= STAGES;
  }
};

// Makes the TMA read a map early.
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  PTX("prefetch.tensormap [%0];", "l"(map));
}

// Makes `Mbarrier::init` visible to the TMA.
__device__ __forceinline__ void fence_mbarrier_init() {
  PTX("fence.mbarrier_init.release.cluster;");
}

// Allows the next launch to start as soon as there is room (programmatic dependent launch).
__device__ __forceinline__ void start_next_launch() { PTX("griddepcontrol.launch_dependents;"); }

// Waits until the previous launch has ended and its results are visible.
__device__ __forceinline__ void wait_for_previous_launch() { PTX("griddepcontrol.wait;"); }
