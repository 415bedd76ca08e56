// ptx: instructions that have no names in CUDA C++. `pipelined` introduces the first of them.

#pragma once

// An instruction without results, with its operands. The compiler moves no access to memory across
// it. On a host that emulates CUDA it is nothing.
#ifdef __CUDACC__
#define PTX(instruction, ...) asm volatile(instruction ::__VA_ARGS__ : "memory")
#else
#define PTX(instruction, ...)
#endif

// An address in shared memory, as instructions take it.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
