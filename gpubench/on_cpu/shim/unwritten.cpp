// Ends the program at the first read of shared memory that no thread of the block has written.
//
// g++ -fsanitize=thread adds a call of a function before each access. Here, this function watches
// the shared memory of the running block. The file is compiled without a sanitizer (see runtime.h).

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime.h"

namespace on_cpu {
namespace {

enum Kind : char { READ = 'r', WRITE = 'w', ATOMIC = 'a', BULK = 't' };

// Static or dynamic shared memory, and for each byte whether it was written.
struct Memory {
  uintptr_t begin = 0;
  std::vector<bool> written;
};

Memory memories[2];
bool has_bulk_copies = false;  // if so, nothing is reported: the bytes that they write are unknown

void record(uintptr_t code, Place place, const void* pointer, size_t bytes, Kind kind) {
  has_bulk_copies = has_bulk_copies || kind == BULK;
  for (Memory& memory : memories) {
    const size_t first = reinterpret_cast<uintptr_t>(pointer) - memory.begin;
    if (first >= memory.written.size() || has_bulk_copies) continue;
    for (size_t at = first; at < first + bytes && at < memory.written.size(); ++at) {
      if (kind == WRITE) memory.written[at] = true;
      if (memory.written[at]) continue;
      std::fprintf(stderr, "fault: unwritten %" PRIxPTR " %d %s\n", code, place.line,
                   place.file ? place.file : "");
      std::_Exit(1);
    }
  }
}

void watch(Memory& memory, const void* begin, size_t bytes) {
  memory.begin = reinterpret_cast<uintptr_t>(begin);
  memory.written.assign(bytes, false);
}

}  // namespace
}  // namespace on_cpu

using namespace on_cpu;

extern "C" void on_cpu_block_starts(unsigned, const void* declared, size_t declared_bytes,
                                    const void* dynamic, size_t dynamic_bytes) {
  watch(memories[0], declared, declared_bytes);
  watch(memories[1], dynamic, dynamic_bytes);
}

extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}

#include "hooks.h"
