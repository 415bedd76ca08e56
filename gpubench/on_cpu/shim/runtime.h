// What a kernel's translation unit and the runtime know of each other.
//
// The kernel is compiled with a sanitizer and the runtime without: what the runtime keeps about
// threads and barriers must not itself look like a race.
#pragma once

#include <cstddef>

namespace on_cpu {

struct Index {
  unsigned x, y, z;
};

// Where in the source a thread waits; the defaults are the place of the call.
struct Place {
  const char* file;
  int line;
};

// The kernel's arguments: its pointers in order, its integers in order, and where its structures lie.
struct Arguments {
  void* const* pointers;
  const long long* numbers;
  void* const* structures;
};

struct Instance {
  const char* name;
  void (*call)(Arguments);
};

// Defined by the generated end of the kernel's translation unit.
extern const Instance instances[];

// Runs `call` for each thread of a grid, with `kernel` in place of structures: a launch that host
// code makes.
void launch_from_host(Index grid, Index block, size_t shared_bytes, void (*call)(Arguments),
                      void* kernel, Place place);

// Memory of a GPU that host code allocates. It holds 0xFF, so that reading it too early shows.
void* allocate(size_t bytes);
void deallocate(void* pointer);

Index thread_index();
Index block_index();
Index block_dimensions();
Index grid_dimensions();
// A fault where the launch has no dynamic shared memory.
void* dynamic_shared_memory(Place place);

void wait_for_block(Place place);
void wait_for_warp(unsigned mask, Place place);
// Hands `bytes` from `mine` of lane `source` to `theirs`, among the lanes of `mask`.
void shuffle(unsigned mask, int source, const void* mine, void* theirs, size_t bytes, Place place);

// Asynchronous copies of the calling thread. `copy_later` gives the bytes to fill; `next_copy` what
// must have landed when all but the last `groups` committed groups are complete, one a call.
struct Copy {
  unsigned char* target;
  unsigned char landing[16];
  size_t bytes;
  size_t group;
};
unsigned char* copy_later(void* to, const void* from, size_t bytes, Place place);
void commit_copies();
const Copy* next_copy(size_t groups);

// What a tensor map holds here; on a GPU only the driver knows.
struct Matrix {
  const unsigned char* address;
  long long rows, columns, box_rows, box_columns, item_bytes;
};

// A bulk copy: `rows` pieces of `bytes`, which lie one behind the other at the target. Those from
// `inside_rows` on are zeros, and so is what lies behind `inside_bytes` in each.
struct BulkCopy {
  unsigned char* target;
  const unsigned char* source;
  size_t rows, bytes, stride, inside_rows, inside_bytes;
};

// Mbarriers. Bulk copies are made when a thread waits for them, and not before: `copy_bulk_later`
// keeps one, `next_bulk_copy` gives those that must be made now, until there is none.
void mbarrier_init(const void* barrier, int arrivals, Place place);
void mbarrier_arrive_expect_bytes(const void* barrier, unsigned bytes, Place place);
void copy_bulk_later(const void* barrier, const BulkCopy& copy, Place place);
bool mbarrier_phase_ended(const void* barrier, unsigned parity, Place place);
const BulkCopy* next_bulk_copy(const void* barrier, Place place);
// Lets other threads run; a fault once that has happened too often since `times` was 0.
void pause(long& times, const char* what, Place place);

}  // namespace on_cpu
