// The interface between a kernel's translation unit and the runtime.
//
// The kernel is compiled with a sanitizer, and the runtime without: otherwise the sanitizer would
// report the runtime's own data about threads and barriers as races.
#pragma once

#include <cstddef>

namespace on_cpu {

struct Index {
  unsigned x, y, z;
};

// A place in the source, such as the place where a thread waits.
struct Place {
  const char* file;
  int line;
};

// The kernel's arguments: its pointers, its integers, and its structures' addresses, in order.
struct Arguments {
  void* const* pointers;
  const long long* numbers;
  void* const* structures;
};

struct Instance {
  const char* name;
  void (*call)(Arguments);
};

// The template instances. The generated end of the kernel's translation unit defines them.
extern const Instance instances[];

// Runs a launch that host code makes: `call` for each thread of a grid, with `kernel` as the only
// structure.
void launch_from_host(Index grid, Index block, size_t shared_bytes, void (*call)(Arguments),
                      void* kernel, Place place);

// Allocates memory for host code that requests memory of a GPU. It contains 0xFF, so that a read
// before the first write makes results wrong.
void* allocate(size_t bytes);
void deallocate(void* pointer);

Index thread_index();
Index block_index();
Index block_dimensions();
Index grid_dimensions();
// Returns dynamic shared memory. Ends the program with a fault if the launch has none.
void* dynamic_shared_memory(Place place);

void wait_for_block(Place place);
void wait_for_warp(unsigned mask, Place place);
// Copies `bytes` from `mine` of the lane `source` to `theirs`, among the lanes of `mask`.
void shuffle(unsigned mask, int source, const void* mine, void* theirs, size_t bytes, Place place);

// Asynchronous copies of the calling thread. `copy_later` returns memory for the bytes to copy. A
// call of `next_copy` returns a copy that must be made before all but the last `groups` committed
// groups are complete; null if there is none.
struct Copy {
  unsigned char* target;
  unsigned char landing[16];
  size_t bytes;
  size_t group;
};
unsigned char* copy_later(void* to, const void* from, size_t bytes, Place place);
void commit_copies();
const Copy* next_copy(size_t groups);

// The content of a tensor map on the CPU. On a GPU, only the driver can read a tensor map.
struct Matrix {
  const unsigned char* address;
  long long rows, columns, box_rows, box_columns, item_bytes;
};

// A bulk copy of `rows` rows of `bytes` bytes, which are consecutive at the target. Rows from
// `inside_rows` on are filled with zeros, and so are the bytes of each row from `inside_bytes` on.
struct BulkCopy {
  unsigned char* target;
  const unsigned char* source;
  size_t rows, bytes, stride, inside_rows, inside_bytes;
};

// Mbarriers. Bulk copies are made when a thread waits for them, and not before. `copy_bulk_later`
// records a copy. Each call of `next_bulk_copy` returns a copy to make now; null if there is none.
void mbarrier_init(const void* barrier, int arrivals, Place place);
void mbarrier_arrive_expect_bytes(const void* barrier, unsigned bytes, Place place);
void copy_bulk_later(const void* barrier, const BulkCopy& copy, Place place);
bool mbarrier_phase_ended(const void* barrier, unsigned parity, Place place);
const BulkCopy* next_bulk_copy(const void* barrier, Place place);
// Lets other threads run. After too many calls since `times` was 0, ends the program with a fault.
void pause(long& times, const char* what, Place place);

}  // namespace on_cpu
