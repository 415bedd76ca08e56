// Runs a kernel's blocks one after another, and the threads of a block as fibers of one OS thread.
//
// A fiber runs until it waits at a barrier or returns. Then the next fiber runs, so all runs of a
// kernel are equal, even on a busy machine. For ThreadSanitizer, each fiber is a thread, a switch
// between fibers orders no accesses, and a barrier orders all accesses of its threads. So
// ThreadSanitizer finds every race that the barriers allow, in whatever order the fibers ran.
// Nothing orders the accesses of two blocks, so it also finds races between blocks.
//
// The runtime itself finds errors that no sanitizer finds: a barrier that some threads do not
// reach, shared memory that is read before it is written (it contains 0xFF, a NaN), and an
// asynchronous copy that is used before the kernel has waited for it.
//
// This file is compiled without a sanitizer (see runtime.h). It can also be linked with
// accesses.cpp, which records accesses, or with unwritten.cpp.

#include "runtime.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <vector>

#include "switch_stacks.h"

// These functions exist if the kernel is linked with AddressSanitizer or ThreadSanitizer.
// Otherwise their addresses are null.
extern "C" {
#define WEAK __attribute__((weak))
WEAK void __sanitizer_start_switch_fiber(void** save, const void* bottom, size_t size);
WEAK void __sanitizer_finish_switch_fiber(void* saved, const void** bottom, size_t* size);
WEAK void* __tsan_get_current_fiber();
WEAK void* __tsan_create_fiber(unsigned flags);
WEAK void __tsan_switch_to_fiber(void* fiber, unsigned flags);
WEAK void __tsan_acquire(void* address);
WEAK void __tsan_release(void* address);

// These functions exist if the kernel is linked with accesses.cpp, which records its accesses.
WEAK void on_cpu_buffer(const void* begin, size_t bytes);
WEAK void on_cpu_block_starts(unsigned threads, const void* declared, size_t declared_bytes,
                              const void* dynamic, size_t dynamic_bytes);
WEAK void on_cpu_resumes(unsigned thread, const void* stack_begin, size_t stack_bytes);
WEAK void on_cpu_warp_pauses(unsigned first);
WEAK bool on_cpu_block_ends();
WEAK void on_cpu_report(std::FILE* out, size_t launch, size_t blocks);
WEAK void on_cpu_forget_buffers();

// Page-aligned bounds of all `__shared__` arrays, from shared.ld.
extern unsigned char cuda_shared_begin[], cuda_shared_end[];
}

namespace on_cpu {
namespace {

constexpr size_t STACK_BYTES = 1 << 19;
constexpr size_t PAGE = 4096;
constexpr unsigned WARP = 32;
constexpr size_t MAX_THREADS = 1024, MAX_GRID_Y = 65'535;
constexpr size_t MAX_SHARED = 227 << 10;  // shared memory of a block on compute capability 9.0

enum class State { READY, AT_BLOCK, AT_WARP, RETURNED };

struct Fiber {
  void* stack_pointer = nullptr;
  unsigned char* stack = nullptr;
  void* asan = nullptr;
  void* tsan = nullptr;
  State state = State::RETURNED;
  unsigned thread = 0;  // number of the thread in its block
  Place place{};        // the line of the source where the thread waits
  unsigned mask = 0;    // the lanes of the warp for which the thread waits
  const void* offered = nullptr;  // the thread's value in a shuffle
  std::deque<Copy> copies;
  size_t committed = 0;
};

constexpr size_t MAX_MBARRIERS = 16, MAX_COPIES = 16;

// An mbarrier: the number of threads that must arrive and that have arrived, the expected bytes,
// and the requested copies. It uses no allocated memory, which ThreadSanitizer would watch.
struct Mbarrier {
  const void* barrier;
  int arrivals, arrived;
  size_t expected, requested, count;
  unsigned phase;
  BulkCopy copies[MAX_COPIES];
  long* order;  // the address for ThreadSanitizer; other blocks have others, so it orders no blocks
};

struct Launch {
  const Instance* instance;
  Index grid, block;
  size_t shared_bytes;
  Arguments arguments;
};

std::deque<Fiber> pool;
Mbarrier mbarriers[MAX_MBARRIERS];  // the mbarriers of the running block
size_t mbarriers_in_use;
long mbarrier_orders[1 << 16];
size_t mbarriers_ever;
std::vector<Fiber*> threads;  // the threads of the running block
Fiber* current;
Fiber scheduler;
const void* scheduler_stack;
size_t scheduler_stack_bytes;
Launch launch;
Index block;
void* dynamic_shared;

// Addresses for ThreadSanitizer: an acquire at an address is ordered after the releases there.
long block_starts, launch_ends;

// Such addresses for the barriers of a block. Blocks have different addresses, so that barriers
// order no accesses of two blocks.
struct Barriers {
  long block, warp[MAX_THREADS / WARP];
} barriers_of[4096];
size_t blocks_ever;
Barriers* barriers;

Index thread_of(unsigned linear) {
  const Index size = launch.block;
  return {linear % size.x, linear / size.x % size.y, linear / size.x / size.y};
}

void acquire(long* order) {
  if (__tsan_acquire) __tsan_acquire(order);
}
void release(long* order) {
  if (__tsan_release) __tsan_release(order);
}

// Fills memory byte by byte, and not by memcpy or memset, which the sanitizers watch.
void fill(unsigned char* begin, const unsigned char* end) {
  for (volatile unsigned char* byte = begin; byte != end; ++byte) *byte = 0xFF;
}

void describe(const Fiber& fiber) {
  const Index t = thread_of(fiber.thread);
  std::fprintf(stderr, "thread (%u,%u,%u) ", t.x, t.y, t.z);
  switch (fiber.state) {
    case State::RETURNED: std::fprintf(stderr, "has returned"); break;
    case State::AT_BLOCK:
      std::fprintf(stderr, "waits for its block at %s:%d", fiber.place.file, fiber.place.line);
      break;
    case State::AT_WARP:
      std::fprintf(stderr, "waits for lanes %08x of its warp at %s:%d", fiber.mask,
                   fiber.place.file, fiber.place.line);
      break;
    case State::READY: std::fprintf(stderr, "runs"); break;
  }
}

[[noreturn]] void fault(Place place, const char* what, const Fiber& one, const Fiber& other) {
  std::fprintf(stderr, "%s:%d: fault: %s in block (%u,%u,%u): ", place.file, place.line, what,
               block.x, block.y, block.z);
  describe(one);
  if (&one != &other) {
    std::fprintf(stderr, ", but ");
    describe(other);
  }
  std::fprintf(stderr, "\n");
  std::_Exit(1);
}

void switch_to(Fiber& from, Fiber& to, const void* bottom, size_t bytes) {
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&from.asan, bottom, bytes);
  constexpr unsigned orders_nothing = 1;
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(to.tsan, orders_nothing);
  on_cpu_switch(&from.stack_pointer, to.stack_pointer);
  const void* last_bottom;
  size_t last_bytes;
  if (__sanitizer_finish_switch_fiber) {
    __sanitizer_finish_switch_fiber(from.asan, &last_bottom, &last_bytes);
  }
}

void resume(Fiber& fiber) {
  current = &fiber;
  if (on_cpu_resumes) on_cpu_resumes(fiber.thread, fiber.stack, STACK_BYTES);
  switch_to(scheduler, fiber, fiber.stack, STACK_BYTES);
}

void yield() {
  switch_to(*current, scheduler, scheduler_stack, scheduler_stack_bytes);
}

[[noreturn]] void fiber_main() {
  if (__sanitizer_finish_switch_fiber) {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
  }
  for (;;) {
    acquire(&block_starts);
    current->copies.clear();
    current->committed = 0;
    launch.instance->call(launch.arguments);
    release(&launch_ends);
    current->state = State::RETURNED;
    yield();
  }
}

void make_fiber() {
  Fiber& fiber = pool.emplace_back();
  void* memory = mmap(nullptr, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, PAGE, PROT_NONE) != 0) {
    std::perror("a fiber's stack");
    std::_Exit(3);
  }
  fiber.stack = static_cast<unsigned char*>(memory) + PAGE;
  void** frame = reinterpret_cast<void**>(fiber.stack + STACK_BYTES) - FRAME;
  frame[RETURN_ADDRESS] = reinterpret_cast<void*>(fiber_main);
  fiber.stack_pointer = frame;
}

// Returns the context in which ThreadSanitizer sees a thread of a block. Since g++ 13,
// ThreadSanitizer remembers the accesses of about 250 contexts, and silently misses races among
// more. So larger blocks share contexts, and only races between two threads of a context are missed.
void* tsan_context(size_t thread, size_t set, size_t sets) {
  constexpr size_t CONTEXTS = 239;  // a prime: threads of a row or of a column share no context
  static std::vector<void*> contexts;
  const size_t index = thread % CONTEXTS * sets + set;
  while (contexts.size() <= index) contexts.push_back(__tsan_create_fiber(0));
  return contexts[index];
}

// Lets the thread wait at `place`, in the given state. After the wait, the accesses of all released
// threads before their waits are ordered before the accesses that follow.
void wait(State state, Place place, unsigned mask, long* order) {
  Fiber& self = *current;
  self.state = state;
  self.place = place;
  self.mask = mask;
  if (order) release(order);
  yield();
  if (order && __tsan_acquire) {
    acquire(order);
    // All released threads must acquire before one of them releases for its next barrier.
    self.state = State::READY;
    yield();
  }
}

bool is_at_barrier(const Fiber& fiber) {
  return fiber.state == State::AT_BLOCK || fiber.state == State::AT_WARP;
}

bool same_place(const Fiber& one, const Fiber& other) {
  const char *file = one.place.file, *other_file = other.place.file;
  // Usually both pointers are equal. strcmp takes long, because the sanitizers watch it.
  return one.place.line == other.place.line &&
         (file == other_file || std::strcmp(file, other_file) == 0);
}

unsigned warp_size(unsigned first) {
  const unsigned left = static_cast<unsigned>(threads.size()) - first;
  return left < WARP ? left : WARP;
}

// Releases the lanes of a warp that wait for each other, if all lanes of their mask wait.
bool release_warp(unsigned first) {
  bool progress = false;
  for (unsigned lane = 0; lane < warp_size(first); ++lane) {
    const Fiber& waiting = *threads[first + lane];
    if (waiting.state != State::AT_WARP) continue;
    const unsigned mask = waiting.mask;
    bool complete = true;
    for (unsigned other = 0; other < warp_size(first); ++other) {
      const Fiber& fiber = *threads[first + other];
      if (!(mask >> other & 1) || fiber.state == State::RETURNED) continue;
      complete = complete && fiber.state == State::AT_WARP && fiber.mask == mask &&
                 same_place(fiber, waiting);
    }
    if (!complete) continue;
    for (unsigned other = 0; other < warp_size(first); ++other) {
      if (mask >> other & 1 && threads[first + other]->state == State::AT_WARP) {
        threads[first + other]->state = State::READY;
      }
    }
    progress = true;
  }
  return progress;
}

// Releases the threads of a block if all of them wait at the same barrier.
bool release_block() {
  for (const Fiber* fiber : threads) {
    if (fiber->state != State::AT_BLOCK || !same_place(*fiber, *threads[0])) return false;
  }
  for (Fiber* fiber : threads) fiber->state = State::READY;
  return true;
}

[[noreturn]] void divergence() {
  const Fiber* waiting = nullptr;
  for (const Fiber* fiber : threads) {
    if (!waiting && is_at_barrier(*fiber)) waiting = fiber;
  }
  for (const Fiber* fiber : threads) {
    const bool alike = fiber->state == waiting->state && same_place(*fiber, *waiting);
    if (!alike) fault(waiting->place, "barrier divergence", *waiting, *fiber);
  }
  fault(waiting->place, "barrier divergence", *waiting, *waiting);
}

// Fills shared memory anew. For ThreadSanitizer, it is also mapped anew: otherwise the accesses of
// the previous block would seem to race with those of this block.
void renew_shared_memory(unsigned char* begin, unsigned char* end) {
  if (begin == end) return;
  const size_t bytes = static_cast<size_t>(end - begin);
  if (__tsan_acquire) {
    mmap(begin, bytes, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  fill(begin, end);
}

void run_block() {
  renew_shared_memory(cuda_shared_begin, cuda_shared_end);
  // A separate allocation, so that AddressSanitizer finds accesses behind dynamic shared memory.
  dynamic_shared = nullptr;
  if (launch.shared_bytes && posix_memalign(&dynamic_shared, 1024, launch.shared_bytes) == 0) {
    auto* bytes = static_cast<unsigned char*>(dynamic_shared);
    fill(bytes, bytes + launch.shared_bytes);
  }
  if (on_cpu_block_starts) {
    on_cpu_block_starts(static_cast<unsigned>(threads.size()), cuda_shared_begin,
                        static_cast<size_t>(cuda_shared_end - cuda_shared_begin), dynamic_shared,
                        launch.shared_bytes);
  }
  mbarriers_in_use = 0;
  barriers = &barriers_of[blocks_ever++ % std::size(barriers_of)];
  for (Fiber* fiber : threads) fiber->state = State::READY;
  release(&block_starts);
  for (bool runs = true; runs;) {
    bool ready = false, waiting = false;
    for (Fiber* fiber : threads) {
      if (fiber->state == State::READY) resume(*fiber);
      const unsigned next = fiber->thread + 1;
      if (on_cpu_warp_pauses && (next % WARP == 0 || next == threads.size())) {
        on_cpu_warp_pauses((next - 1) / WARP * WARP);
      }
    }
    for (const Fiber* fiber : threads) {
      ready = ready || fiber->state == State::READY;
      waiting = waiting || is_at_barrier(*fiber);
    }
    runs = ready || waiting;
    if (ready || !waiting) continue;
    bool progress = release_block();
    for (unsigned first = 0; first < threads.size(); first += WARP) {
      progress = release_warp(first) || progress;
    }
    if (!progress) divergence();
  }
}

// Reports a launch that a GPU would refuse. On a GPU, a source without error checks hides it.
void require_launchable(const Launch& one, Place place) {
  const auto volume = [](Index extents) { return size_t{extents.x} * extents.y * extents.z; };
  const char* what = nullptr;
  if (volume(one.grid) == 0) what = "a launch of no blocks";
  if (volume(one.block) == 0) what = "a launch of blocks without threads";
  if (volume(one.block) > MAX_THREADS) what = "a launch of more than 1024 threads per block";
  if (one.grid.y > MAX_GRID_Y || one.grid.z > MAX_GRID_Y) what = "a launch of too many blocks in y or z";
  if (one.shared_bytes > MAX_SHARED) what = "a launch with too much dynamic shared memory";
  if (!what) return;
  if (place.file) std::fprintf(stderr, "%s:%d: ", place.file, place.line);
  std::fprintf(stderr, "fault: %s: <<<(%u,%u,%u), (%u,%u,%u), %zu>>>\n", what, one.grid.x,
               one.grid.y, one.grid.z, one.block.x, one.block.y, one.block.z, one.shared_bytes);
  std::_Exit(1);
}

// Runs the chosen blocks, or all blocks if `chosen` is empty. Returns the number of blocks.
size_t run(const Launch& one, const std::vector<Index>& chosen, Place place = {}) {
  require_launchable(one, place);
  launch = one;
  const size_t count = size_t{one.block.x} * one.block.y * one.block.z;
  // Consecutive blocks use different fibers. A fiber of two blocks would order their accesses for
  // ThreadSanitizer, which then would not find races between them.
  const size_t sets = __tsan_create_fiber ? 3 : 1;
  while (pool.size() < sets * count) make_fiber();
  threads.resize(count);
  std::vector<void*> used;
  size_t number = 0;
  const auto run_at = [&](Index at) {
    const size_t set = number % sets;
    for (size_t t = 0; t < count; ++t) {
      threads[t] = &pool[set * count + t];
      threads[t]->thread = static_cast<unsigned>(t);
      if (__tsan_create_fiber) threads[t]->tsan = tsan_context(t, set, sets);
    }
    ++number;
    block = at;
    run_block();
    used.push_back(dynamic_shared);
    return !on_cpu_block_ends || on_cpu_block_ends();
  };
  for (const Index& at : chosen) {
    if (!run_at(at)) break;
  }
  for (unsigned z = 0; chosen.empty() && z < one.grid.z; ++z) {
    for (unsigned y = 0; y < one.grid.y; ++y) {
      for (unsigned x = 0; x < one.grid.x; ++x) run_at({x, y, z});
    }
  }
  acquire(&launch_ends);
  for (void* memory : used) std::free(memory);
  return number;
}

}  // namespace

// `assert` of glibc calls this function.
extern "C" [[noreturn]] void __assert_fail(const char* condition, const char* file, unsigned line,
                                           const char*) noexcept {
  std::fprintf(stderr, "%s:%u: fault: assertion failed: %s\n", file, line, condition);
  std::_Exit(1);
}

Index thread_index() { return thread_of(current->thread); }
Index block_index() { return block; }
Index block_dimensions() { return launch.block; }
Index grid_dimensions() { return launch.grid; }
void* dynamic_shared_memory(Place place) {
  if (!dynamic_shared) {
    fault(place, "extern __shared__ memory in a launch without any", *current, *current);
  }
  return dynamic_shared;
}

void launch_from_host(Index grid, Index block, size_t shared_bytes, void (*call)(Arguments),
                      void* kernel, Place place) {
  void* const structures[] = {kernel};
  const Instance instance{"a launch", call};
  run({&instance, grid, block, shared_bytes, {nullptr, nullptr, structures}}, {}, place);
}

void* allocate(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes) != 0) return nullptr;
  fill(static_cast<unsigned char*>(memory), static_cast<unsigned char*>(memory) + bytes);
  return memory;
}
void deallocate(void* pointer) { std::free(pointer); }

void wait_for_block(Place place) { wait(State::AT_BLOCK, place, 0, &barriers->block); }

void wait_for_warp(unsigned mask, Place place) {
  if (!(mask >> current->thread % WARP & 1)) {
    fault(place, "lane not in its own mask", *current, *current);
  }
  wait(State::AT_WARP, place, mask, &barriers->warp[current->thread / WARP]);
}

// A shuffle orders no memory accesses of the lanes, as on a GPU: only a __syncwarp orders them.
void shuffle(unsigned mask, int source, const void* mine, void* theirs, size_t bytes, Place place) {
  Fiber& self = *current;
  const unsigned lane = self.thread % WARP, from = self.thread - lane + source;
  if (!(mask >> lane & 1)) fault(place, "lane not in its own mask", self, self);
  self.offered = mine;
  wait(State::AT_WARP, place, mask, nullptr);
  // A lane outside the mask, beyond the block, or that has returned gives garbage: here a NaN.
  const bool there = mask >> source & 1 && from < threads.size() &&
                     threads[from]->state != State::RETURNED;
  const auto* value = static_cast<const volatile unsigned char*>(there ? threads[from]->offered : 0);
  for (size_t i = 0; i < bytes; ++i) {
    static_cast<volatile unsigned char*>(theirs)[i] = there ? value[i] : 0xFF;
  }
  wait(State::AT_WARP, place, mask, nullptr);  // `mine` must live until all lanes have read it
}

unsigned char* copy_later(void* to, const void* from, size_t bytes, Place place) {
  const auto bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  if ((bytes != 4 && bytes != 8 && bytes != 16) || bits % bytes) {
    fault(place, "asynchronous copy not of 4, 8 or 16 aligned bytes", *current, *current);
  }
  current->copies.push_back({static_cast<unsigned char*>(to), {}, bytes, current->committed});
  return current->copies.back().landing;
}

void commit_copies() { ++current->committed; }

namespace {
Mbarrier& initialized(const void* barrier, Place place) {
  for (size_t i = 0; i < mbarriers_in_use; ++i) {
    if (mbarriers[i].barrier == barrier) return mbarriers[i];
  }
  fault(place, "mbarrier used before its initialization", *current, *current);
}
}  // namespace

void mbarrier_init(const void* barrier, int arrivals, Place place) {
  if (mbarriers_in_use == MAX_MBARRIERS) fault(place, "too many mbarriers", *current, *current);
  Mbarrier& state = mbarriers[mbarriers_in_use++];
  state.barrier = barrier;
  state.arrivals = arrivals;
  state.arrived = 0;
  state.expected = state.requested = state.count = 0;
  state.phase = 0;
  state.order = &mbarrier_orders[mbarriers_ever++ % std::size(mbarrier_orders)];
}

void mbarrier_arrive_expect_bytes(const void* barrier, unsigned bytes, Place place) {
  Mbarrier& state = initialized(barrier, place);
  ++state.arrived;
  state.expected += bytes;
}

void copy_bulk_later(const void* barrier, const BulkCopy& copy, Place place) {
  Mbarrier& state = initialized(barrier, place);
  const auto target = reinterpret_cast<uintptr_t>(copy.target);
  const auto source = reinterpret_cast<uintptr_t>(copy.source);
  if (copy.rows == 1 ? (target | source | copy.bytes) % 16 : target % 128 || copy.stride % 16) {
    fault(place, "bulk copy that is not aligned", *current, *current);
  }
  if (state.count == MAX_COPIES) fault(place, "too many bulk copies", *current, *current);
  state.copies[state.count++] = copy;
  state.requested += copy.rows * copy.bytes;
  release(state.order);
}

bool mbarrier_phase_ended(const void* barrier, unsigned parity, Place place) {
  Mbarrier& state = initialized(barrier, place);
  for (long times = 0; state.phase % 2 == parity; pause(times, "an mbarrier whose phase never ends", place)) {
    if (state.arrived == state.arrivals && state.expected == state.requested) {
      acquire(state.order);
      return false;  // the caller makes the requested copies now
    }
  }
  acquire(state.order);
  return true;
}

const BulkCopy* next_bulk_copy(const void* barrier, Place place) {
  Mbarrier& state = initialized(barrier, place);
  if (state.count > 0) return &state.copies[--state.count];
  state.arrived = 0;
  state.expected = state.requested = 0;
  ++state.phase;
  release(state.order);
  return nullptr;
}

void pause(long& times, const char* what, Place place) {
  constexpr long MAX_PAUSES = 100'000;
  if (++times == MAX_PAUSES) fault(place, what, *current, *current);
  yield();
}

const Copy* next_copy(size_t groups) {
  static Copy copy;
  std::deque<Copy>& copies = current->copies;
  if (copies.empty() || copies.front().group + groups >= current->committed) return nullptr;
  copy = copies.front();
  copies.pop_front();
  return &copy;
}

}  // namespace on_cpu

#include "run_cases.h"

int main(int count, char** names) {
  if (count != 3) return 3;
  std::FILE* in = std::fopen(names[1], "rb");
  std::FILE* out = std::fopen(names[2], "wb");
  if (!in || !out) return 3;
  if (__tsan_get_current_fiber) on_cpu::scheduler.tsan = __tsan_get_current_fiber();
  for (auto cases = on_cpu::number(in); cases > 0; --cases) on_cpu::run_case(in, out);
  std::fclose(out);
  return 0;
}
