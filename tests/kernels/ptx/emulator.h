// The PTX of kernels with clusters, executed on the CPU: `emulation.py` turns every `asm volatile`
// of a kernel into a call of `ptx`, whose arguments are the text and the operands of the instruction.
//
// All threads of a cluster are fibers, which run in a random order until they wait. Asynchronous
// copies end at random times. Until a copy ends, its target holds 0xFF (NaN), so results are wrong if a
// kernel reads too early or overwrites a source too early. A wait that never ends is an error.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

using std::size_t;

#define __CUDACC__
#define __CUDA_ARCH__ 900
#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__
#define alignas(bytes) __attribute__((aligned(bytes)))

struct float4 {
  float x, y, z, w;
} __attribute__((aligned(16)));
struct double2 {
  double x, y;
} __attribute__((aligned(16)));
struct uint4 {
  unsigned x, y, z, w;
} __attribute__((aligned(16)));
struct uint2 {
  unsigned x, y;
} __attribute__((aligned(8)));
struct int4 {
  int x, y, z, w;
} __attribute__((aligned(16)));
struct float2 {
  float x, y;
} __attribute__((aligned(8)));
inline float2 make_float2(float x, float y) { return {x, y}; }
inline double2 make_double2(double x, double y) { return {x, y}; }
inline int4 __ldcs(const int4* from) { return *from; }
template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}

// The types of operands. Kernels use them only as types of pointers and elements.
struct __nv_bfloat16 {
  uint16_t bits;

  __nv_bfloat16(float value = 0) {  // to nearest even
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    bits = (wide + 0x7FFF + (wide >> 16 & 1)) >> 16;
  }
  operator float() const {
    const uint32_t wide = bits << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
};
struct __nv_fp8_e4m3 {
  uint8_t bits = 0;

  __nv_fp8_e4m3(float value = 0) {  // to the nearest number
    float least = INFINITY;
    for (int code = 0; code < 256; ++code) {
      const float apart = std::fabs(decoded(code) - value);
      if (apart < least) least = apart, bits = code;
    }
  }
  operator float() const { return decoded(bits); }
  static float decoded(int code) {
    static const std::array<float, 256> all = [] {
      std::array<float, 256> numbers;
      for (int i = 0; i < 256; ++i) numbers[i] = decode(i);
      return numbers;
    }();
    return all[code];
  }
  static float decode(int code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    if (exponent == 15 && fraction == 7) return NAN;
    const float size = exponent ? std::ldexp(8 + fraction, exponent - 10) : std::ldexp(fraction, -9);
    return code & 128 ? -size : size;
  }
};

namespace emulated {

constexpr size_t SHARED_BYTES = 256 * 1024, STATIC_BYTES = 8 * 1024, STACK_BYTES = 256 * 1024;
constexpr int RANK_SHIFT = 20;  // first bit of the block's rank in an address of the cluster's shared memory

struct Index {
  unsigned x, y, z;
};

inline int planted = 0;  // number of the planted fault; 0: none

[[noreturn]] inline void fail(const std::string& what) {
  std::printf("fault: %s\n", what.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

struct Barrier {
  int arrived = 0;
  long generation = 0;
};
struct Mbarrier {
  int arrivals = 0, pending = 0;
  long bytes = 0, phase = 0;
};
struct AsyncCopy {
  unsigned char* to;
  const unsigned char* from;
  int bytes, group;
};

struct Block {
  unsigned char* shared;
  int index, live;
  Barrier named[16], warpgroups[8];
  std::map<unsigned, Mbarrier> mbarriers;
  std::map<int, size_t> static_arrays;
  size_t static_end = SHARED_BYTES - STATIC_BYTES;
};

// What a tensor map describes, in the bytes of the kernel's CUtensorMap: a matrix, or `batch`
// matrices in a map of three dimensions.
struct Map {
  unsigned char* address;
  long rows, columns, pitch, box_rows, box_columns, item_bytes, swizzle_bytes, batch;
};

// A box that is stored when its thread waits for it. It must not change in shared memory until then.
struct BoxStore {
  Map map;
  unsigned from;
  long row, column;
  unsigned matrix;
  std::vector<unsigned char> content;
};

struct Product {
  std::function<void()> execute;
  int group;
};

struct Fiber {
  ucontext_t context;  // where the fiber starts
  jmp_buf place;       // where the fiber continues
  bool started = false;
  std::unique_ptr<char[]> stack{new char[STACK_BYTES]};
  Block* block;
  int thread, rank;
  long cluster_generation = 0;
  bool finished = false;
  std::vector<AsyncCopy> copies;
  int groups = 0;
  std::vector<Product> products;  // products of a warpgroup, which run until the warpgroup waits
  int product_groups = 0;
  std::vector<BoxStore> stores;
  double offered[16];
};

struct Warp {
  Barrier barrier;
  int live = 32;
};

inline std::vector<std::unique_ptr<Fiber>> fibers;
inline std::vector<Block> blocks;
inline std::vector<Warp> warps;
inline Fiber* current;
inline jmp_buf scheduler;
inline bool progress;
inline Index grid, threads;
inline const unsigned char *inputs[2], *inputs_end[2];

// Switches by jumps, because swapcontext also makes a system call for the signal mask each time.
inline void yield() {
  if (!_setjmp(current->place)) _longjmp(scheduler, 1);
}
template <typename Ready>
void wait_until(Ready ready) {
  while (!ready()) yield();
  progress = true;
}

inline void arrive(Barrier& barrier, int count) {
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    ++barrier.generation;
    progress = true;
  }
}
inline void meet(Barrier& barrier, int count) {
  const long generation = barrier.generation;
  arrive(barrier, count);
  wait_until([&] { return barrier.generation != generation; });
}
inline Warp& warp_of(const Fiber& fiber) {
  return warps[fiber.rank * ((threads.x + 31) / 32) + fiber.thread / 32];
}
inline Warp& warp() { return warp_of(*current); }
inline void meet_warp() { meet(warp().barrier, warp().live); }
inline Fiber& lane(int number) {
  return *fibers[current->rank * threads.x + current->thread / 32 * 32 + number];
}

// ---- instructions

struct Operand {
  void* address;
  uint64_t bits;
  int bytes;

  template <typename T>
  T as() const {
    T value;
    std::memcpy(&value, address ? address : &bits, sizeof(T));
    return value;
  }
  template <typename T>
  void set(T value) const {
    if (sizeof(T) != static_cast<size_t>(bytes)) fail("a result of another size");
    std::memcpy(address, &value, sizeof(T));
  }
  unsigned number() const { return as<unsigned>(); }
};
template <typename T>
Operand out(T& value) {
  return {&value, 0, sizeof(T)};
}
template <typename T>
Operand in(T value) {
  Operand operand{nullptr, 0, sizeof(T)};
  std::memcpy(&operand.bits, &value, sizeof(T));
  return operand;
}

// Functions of emulator.cpp, which all programs share.
void ptx(std::string_view text, std::initializer_list<Operand> operands);
void launch(Index blocks_of_grid, int cluster, int block_threads, size_t shared_bytes,
            unsigned seed, std::function<void()> kernel);

template <typename T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(current->block->shared);
}
template <typename T>
T& static_shared(int id) {
  Block& block = *current->block;
  auto [at, fresh] = block.static_arrays.try_emplace(id, block.static_end);
  if (fresh) block.static_end += (sizeof(T) + 127) / 128 * 128;
  if (block.static_end > SHARED_BYTES) fail("too much static shared memory");
  return *reinterpret_cast<T*>(block.shared + at->second);
}
inline Index block_index() {
  const unsigned index = current->block->index;
  return {index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y};
}
inline Index thread_index() { return {static_cast<unsigned>(current->thread), 0, 0}; }

}  // namespace emulated

#define threadIdx (::emulated::thread_index())
#define blockIdx (::emulated::block_index())
#define blockDim (::emulated::threads)
#define gridDim (::emulated::grid)

inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline size_t __cvta_generic_to_shared(const void* pointer) {
  return static_cast<const unsigned char*>(pointer) - emulated::current->block->shared;
}
inline void __syncthreads() {
  emulated::meet(emulated::current->block->named[0], emulated::current->block->live);
}
inline void __syncwarp() { emulated::meet_warp(); }
template <typename T>
T __shfl_sync(unsigned, T value, int source) {
  emulated::current->offered[15] = value;
  emulated::meet_warp();
  const T theirs = static_cast<T>(emulated::lane(source).offered[15]);
  emulated::meet_warp();
  return theirs;
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int apart) {
  return __shfl_sync(mask, value, emulated::current->thread % 32 ^ apart);
}
