// async_copy: copies to shared memory that run while threads go on. `pipelined` introduces them.
//
// cuda_pipeline.h has the same three calls, but NVRTC does not find it without the CUDA toolkit.

#pragma once

#include "ptx.cuh"

// Starts a copy of 4, 8 or 16 bytes. Both addresses are multiples of BYTES. If not `inside`, zeros
// are written and nothing is read. Before compute capability 8.0 the thread itself copies.
template <int BYTES>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool inside = true) {
#ifndef __CUDACC__  // a host that emulates CUDA
  __pipeline_memcpy_async(to, from, BYTES, inside ? 0 : BYTES);
#elif __CUDA_ARCH__ >= 800
  const unsigned at = shared_address(to);
  const int read = inside ? BYTES : 0;
  if (BYTES == 16) {  // bypasses the L1 cache, where nothing would read it again
    PTX("cp.async.cg.shared.global [%0], [%1], 16, %2;", "r"(at), "l"(from), "r"(read));
  } else {
    PTX("cp.async.ca.shared.global [%0], [%1], %2, %3;", "r"(at), "l"(from), "n"(BYTES), "r"(read));
  }
#else
  for (int i = 0; i < BYTES / 4; ++i) {
    static_cast<int*>(to)[i] = inside ? static_cast<const int*>(from)[i] : 0;
  }
#endif
}

// Closes the group of the copies that this thread has requested since the last call.
__device__ __forceinline__ void commit_copies() {
#ifndef __CUDACC__
  __pipeline_commit();
#elif __CUDA_ARCH__ >= 800
  PTX("cp.async.commit_group;");
#endif
}

// Waits until at most PENDING groups of this thread are unfinished.
template <int PENDING>
__device__ __forceinline__ void await_copies() {
#ifndef __CUDACC__
  __pipeline_wait_prior(PENDING);
#elif __CUDA_ARCH__ >= 800
  PTX("cp.async.wait_group %0;", "n"(PENDING));
#endif
}
