// copy_engine: what compute capability 9.0 has for bulk copies, and for launches and blocks that
// wait for each other. CUDA's own headers for it (cuda/barrier) are not among NVRTC's.

#pragma once

// A tensor map: what the copy engine must know of a matrix. Opaque, made by the driver.
struct alignas(64) Map {
  unsigned long long words[16];
};

// A barrier in shared memory whose phase ends when all have arrived and all bytes announced are in.
struct Arrival {
  unsigned long long state;

#ifndef __CUDA_ARCH__  // a host that emulates CUDA
  void start(int parties) { on_cpu::start_arrival(this, parties); }
  void announce(unsigned bytes) { on_cpu::announce(this, bytes); }
  void copy(void* to, const void* from, unsigned bytes) { on_cpu::bulk_copy(this, to, from, bytes); }
  void copy_box(void* to, const Map* map, int row, int col) {
    on_cpu::bulk_copy_box(this, to, map->words, row, col);
  }
  void await(unsigned parity) { on_cpu::await_arrival(this, parity); }
#else
  __device__ __forceinline__ unsigned at() const {
    return static_cast<unsigned>(__cvta_generic_to_shared(this));
  }
  __device__ __forceinline__ void start(int parties) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at()), "r"(parties) : "memory");
  }
  // Arrives, and says how many bytes this phase waits for besides.
  __device__ __forceinline__ void announce(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at()), "r"(bytes)
                 : "memory");
  }
  __device__ __forceinline__ void copy(void* to, const void* from, unsigned bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
        "l"(from), "r"(bytes), "r"(at())
        : "memory");
  }
  // The box of a matrix that begins at (row, col), as the map describes matrix and box.
  __device__ __forceinline__ void copy_box(void* to, const Map* map, int row, int col) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(
            static_cast<unsigned>(__cvta_generic_to_shared(to))),
        "l"(map), "r"(col), "r"(row), "r"(at())
        : "memory");
  }
  // Returns when the phase of this parity has ended; phases are 0, 1, 0, 1, ...
  __device__ __forceinline__ void await(unsigned parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again%=;\n}" ::"r"(
            at()),
        "r"(parity)
        : "memory");
  }
#endif
};

// After `Arrival::start`, so that the copy engine sees it.
__device__ __forceinline__ void publish_arrivals() {
#ifdef __CUDA_ARCH__
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Lets the next launch start as soon as there is room.
__device__ __forceinline__ void release_next_launch() {
#ifdef __CUDA_ARCH__
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Returns when the launch before has ended, and its results are there.
__device__ __forceinline__ void await_previous_launch() {
#ifdef __CUDA_ARCH__
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Tells other blocks that what this thread knows to be written is there.
__device__ __forceinline__ void raise(unsigned* flag) {
#ifndef __CUDA_ARCH__
  __atomic_store_n(flag, 1u, __ATOMIC_RELEASE);
#else
  asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
#endif
}

__device__ __forceinline__ void await(const unsigned* flag) {
#ifndef __CUDA_ARCH__
  on_cpu::await_flag(flag);
#else
  unsigned raised;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
  } while (!raised);
#endif
}
