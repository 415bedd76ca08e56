// CUDA C++ for g++: a kernel file compiles unchanged with this header, and runs on the CPU.
//
// The header has only names that kernels use. A missing name is a compile error, never a silent
// difference. Inline PTX is not supported.
#pragma once

#include <cstddef>
// This removes libstdc++'s special functions (Bessel and others), which CUDA lacks. <cmath> then
// compiles in a quarter of the time.
#undef _GLIBCXX_USE_STD_SPEC_FUNCS

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime.h"

using std::size_t;

// Kernels have internal linkage, because AddressSanitizer puts no redzones around arrays that the
// linker may merge. A kernel that another source launches needs external linkage.
#ifdef ON_CPU_LINKED
#define __global__
#else
#define __global__ static
#endif
#define __device__
#define __host__
#ifdef ON_CPU_RECORDS  // an inlined access is recorded at the line that makes the access
#define __forceinline__ inline __attribute__((always_inline))
#else
#define __forceinline__ inline
#endif
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__
// CUDA's compilers also accept alignas between `__shared__` and the type.
#define alignas(bytes) __attribute__((aligned(bytes)))

// A shared array is a static variable, because the blocks run one after another. shared.ld puts all
// shared arrays together, and the runtime fills them with 0xFF before each block.
#define __shared__ static
// shared.ld leaves out constant memory, because all blocks share it.
#define __constant__ static
#define __managed__

// unit.py replaces `extern __shared__ T name[];` by these macros, in a function or outside. This is
// the only change to a kernel's text.
#define DYNAMIC_SHARED(T, name)                         \
  auto* const name = static_cast<std::type_identity_t<T>*>( \
      on_cpu::dynamic_shared_memory({__FILE__, __LINE__}))
#define FILE_DYNAMIC_SHARED(T, name) static on_cpu::DynamicShared<T> name{{__FILE__, __LINE__}}
namespace on_cpu {
template <typename T>
struct DynamicShared {
  Place place;
  operator T*() const { return static_cast<T*>(dynamic_shared_memory(place)); }
  template <typename U>
  explicit operator U*() const { return reinterpret_cast<U*>(static_cast<T*>(*this)); }
};
}  // namespace on_cpu

#define threadIdx (::on_cpu::thread_index())
#define blockIdx (::on_cpu::block_index())
#define blockDim (::on_cpu::block_dimensions())
#define gridDim (::on_cpu::grid_dimensions())
constexpr int warpSize = 32;

#define ON_CPU_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(ON_CPU_PLACE) { on_cpu::wait_for_block({file, line}); }
inline void __syncwarp(unsigned mask = ~0u, ON_CPU_PLACE) {
  on_cpu::wait_for_warp(mask, {file, line});
}

namespace on_cpu {
inline unsigned lane() {
  const Index thread = thread_index(), block = block_dimensions();
  return (thread.x + block.x * (thread.y + block.y * thread.z)) % warpSize;
}
template <typename T>
T from_lane(unsigned mask, T value, int source, Place place) {
  T theirs;
  shuffle(mask, source, &value, &theirs, sizeof(T), place);
  return theirs;
}
}  // namespace on_cpu

// A lane whose source lies outside its segment of `width` keeps its own value.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, ON_CPU_PLACE) {
  const int lane = static_cast<int>(on_cpu::lane()), first = lane & ~(width - 1);
  return on_cpu::from_lane(mask, value, first + (source & (width - 1)), {file, line});
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, ON_CPU_PLACE) {
  const int lane = static_cast<int>(on_cpu::lane()), end = (lane & ~(width - 1)) + width;
  const int source = lane + static_cast<int>(delta);
  return on_cpu::from_lane(mask, value, source < end ? source : lane, {file, line});
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, ON_CPU_PLACE) {
  const int lane = static_cast<int>(on_cpu::lane()), first = lane & ~(width - 1);
  const int source = lane - static_cast<int>(delta);
  return on_cpu::from_lane(mask, value, source >= first ? source : lane, {file, line});
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, ON_CPU_PLACE) {
  const int lane = static_cast<int>(on_cpu::lane()), end = (lane & ~(width - 1)) + width;
  const int source = lane ^ lane_mask;
  return on_cpu::from_lane(mask, value, source < end ? source : lane, {file, line});
}

#ifdef ON_CPU_RECORDS
extern "C" void on_cpu_access(const void* address, size_t bytes, char kind, const char* file,
                              int line);
namespace on_cpu {
template <typename T>
__attribute__((noinline, no_sanitize("thread"))) T add(T* address, T value) {
  const T old = *address;
  *address = old + value;
  return old;
}
}  // namespace on_cpu
#endif

// Relaxed, as on a GPU: an atomic operation does not order other accesses.
template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value, ON_CPU_PLACE) {
#ifdef ON_CPU_RECORDS
  on_cpu_access(address, sizeof(T), 'a', file, line);
  return on_cpu::add(address, value);
#else
  T old, sum;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  do {
    sum = old + value;
  } while (!__atomic_compare_exchange(address, &old, &sum, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED));
  return old;
#endif
}

template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}

template <typename T>
__forceinline__ T __ldg(const T* address) {
  return *address;
}

// The vector types, with the alignment that a GPU requires. UBSan reports misaligned accesses.
#define ON_CPU_VECTORS(T, name, align2, align4)                                         \
  struct __align__(align2) name##2 {                                                    \
    T x, y;                                                                             \
  };                                                                                    \
  struct name##3 {                                                                      \
    T x, y, z;                                                                          \
  };                                                                                    \
  struct __align__(align4) name##4 {                                                    \
    T x, y, z, w;                                                                       \
  };                                                                                    \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                            \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                    \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
ON_CPU_VECTORS(float, float, 8, 16)
ON_CPU_VECTORS(double, double, 16, 16)
ON_CPU_VECTORS(signed char, char, 2, 4)
ON_CPU_VECTORS(unsigned char, uchar, 2, 4)
ON_CPU_VECTORS(short, short, 4, 8)
ON_CPU_VECTORS(unsigned short, ushort, 4, 8)
ON_CPU_VECTORS(int, int, 8, 16)
ON_CPU_VECTORS(unsigned, uint, 8, 16)
ON_CPU_VECTORS(long long, longlong, 16, 16)
typedef unsigned int uint;

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(on_cpu::Index of) : dim3(of.x, of.y, of.z) {}
  constexpr operator on_cpu::Index() const { return {x, y, z}; }
};

// Only PTX uses such an address, and no PTX is executed here.
size_t __cvta_generic_to_shared(const void* pointer);

// `cuda_pipeline.h`. An asynchronous copy is made when a thread waits for it, and not before. Until
// then, its target contains 0xFF, so that reading the target too early makes results wrong.
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0,
                                    ON_CPU_PLACE) {
#ifdef ON_CPU_RECORDS
  if (zeros < bytes) on_cpu_access(from, bytes, 'r', file, line);
  on_cpu_access(to, bytes, 'w', file, line);
  return;
#endif
  auto* target = static_cast<unsigned char*>(to);
  const auto* source = static_cast<const unsigned char*>(from);
  unsigned char* landing = on_cpu::copy_later(to, from, bytes, {file, line});
  for (size_t i = 0; i < bytes; ++i) {
    landing[i] = i < bytes - zeros ? source[i] : 0;
    target[i] = 0xFF;
  }
}
inline void __pipeline_commit() { on_cpu::commit_copies(); }
inline void __pipeline_wait_prior(size_t groups) {
  while (const on_cpu::Copy* copy = on_cpu::next_copy(groups)) {
    for (size_t i = 0; i < copy->bytes; ++i) copy->target[i] = copy->landing[i];
  }
}

// Blocks run one after another. Only releases and acquires of flags order their accesses.
inline void __threadfence() {}

// Functions that `tma.cuh` and `stream_k.cuh` call instead of PTX.
namespace on_cpu {

inline void mbarrier_init(const void* barrier, int arrivals, ON_CPU_PLACE) {
  mbarrier_init(barrier, arrivals, Place{file, line});
}
inline void mbarrier_arrive_expect_bytes(const void* barrier, unsigned bytes, ON_CPU_PLACE) {
  mbarrier_arrive_expect_bytes(barrier, bytes, Place{file, line});
}
// Until the copy is made, its target contains 0xFF, so that reading it too early is noticed.
inline void copy_bulk(const void* barrier, const BulkCopy& copy, Place place) {
  copy_bulk_later(barrier, copy, place);
#ifdef ON_CPU_RECORDS
  on_cpu_access(copy.source, 1, 't', place.file, place.line);
  return;
#endif
  for (size_t i = 0; i < copy.rows * copy.bytes; ++i) copy.target[i] = 0xFF;
}
inline void copy_bulk(const void* barrier, void* to, const void* from, unsigned bytes,
                      ON_CPU_PLACE) {
  copy_bulk(barrier,
            BulkCopy{static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), 1,
                     bytes, bytes, 1, bytes},
            {file, line});
}
inline void copy_box(const void* barrier, void* to, const void* map, int row, int col,
                          ON_CPU_PLACE) {
  const Matrix& of = *static_cast<const Matrix*>(map);
  const auto inside = [](long long from, long long extent, long long box) {
    return static_cast<size_t>(max(0ll, min(extent - from, box)));
  };
  const size_t stride = of.columns * of.item_bytes;
  copy_bulk(barrier,
            BulkCopy{static_cast<unsigned char*>(to),
                     of.address + row * stride + col * of.item_bytes,
                     static_cast<size_t>(of.box_rows),
                     static_cast<size_t>(of.box_columns * of.item_bytes), stride,
                     inside(row, of.rows, of.box_rows),
                     inside(col, of.columns, of.box_columns) * of.item_bytes},
            {file, line});
}
inline void mbarrier_wait(const void* barrier, unsigned parity, ON_CPU_PLACE) {
  while (!mbarrier_phase_ended(barrier, parity, {file, line})) {
    while (const BulkCopy* copy = next_bulk_copy(barrier, {file, line})) {
#ifdef ON_CPU_RECORDS
      continue;
#endif
      for (size_t row = 0; row < copy->rows; ++row) {
        unsigned char* const target = copy->target + row * copy->bytes;
        const unsigned char* const source = copy->source + row * copy->stride;
        const size_t bytes = row < copy->inside_rows ? copy->inside_bytes : 0;
        for (size_t i = 0; i < copy->bytes; ++i) target[i] = i < bytes ? source[i] : 0;
      }
    }
  }
}
inline void wait_acquire(const unsigned* flag, ON_CPU_PLACE) {
  for (long times = 0; !__atomic_load_n(flag, __ATOMIC_ACQUIRE);) {
    pause(times, "a flag that no earlier block has set", {file, line});
  }
}

// Returns the next argument of type P. Pointers, integers and structures are in separate lists.
template <typename P>
P next(Arguments& rest) {
  if constexpr (std::is_class_v<P> && !std::is_convertible_v<long long, P>) {
    return *static_cast<const P*>(*rest.structures++);
  } else if constexpr (std::is_pointer_v<P>) {
    return static_cast<P>(*rest.pointers++);
  } else {
    return static_cast<P>(*rest.numbers++);
  }
}

template <typename Result, typename... P>
struct Applied {
  Applied(Result (*kernel)(P...), P... arguments) { kernel(arguments...); }
};

template <typename Result, typename... P>
void apply(Result (*kernel)(P...), Arguments rest) {
  // With braces, C++ evaluates the arguments from left to right.
  Applied<Result, P...>{kernel, next<std::remove_cvref_t<P>>(rest)...};
}

template <auto Kernel>
void call(Arguments arguments) {
  apply(Kernel, arguments);
}

}  // namespace on_cpu

#include "host.h"
#include "intrinsics.h"
