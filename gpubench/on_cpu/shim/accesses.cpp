// Records the accesses of sampled blocks, and counts what each asks of the memory of a GPU.
//
// g++ -fsanitize=thread calls a function before each access, and -fsanitize-coverage=trace-pc calls
// one in each basic block. ThreadSanitizer defines these functions to find races; here they record.
// The lanes of a warp run one after another, so their accesses are matched when the warp pauses at a
// barrier or ends: a request is made of the lanes that access the same site in the same iteration.
//
// - A site is an instruction, by its address, its callers, and the array that it accesses.
// - An iteration is counted by the jumps back that a lane has taken since the last pause. If lanes
//   took other jumps back and cannot be matched, their requests count as diverging, and nothing else
//   of them is counted.
//
// Compiled without a sanitizer, see runtime.h.

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <unordered_map>
#include <vector>

#include "runtime.h"

namespace on_cpu {
namespace {

constexpr unsigned WARP = 32;
constexpr uintptr_t SECTOR = 32, LINE = 128, WORD = 4, BANKS = 32;
constexpr uintptr_t PHASE_BYTES = 128;  // what one phase of a request to shared memory moves at most
constexpr size_t MAX_VECTOR = 16;       // bytes of the widest load of a thread
constexpr size_t MAX_RECORDED = 4096;   // accesses of a lane at a site that are kept until a pause

constexpr uint64_t ENOUGH_CALLS = 1 << 24;  // after this number for a launch, no further block runs

// Where an address lies: the index of a buffer, or one of these.
constexpr int SHARED = -1, LOCAL = -2;

// BULK: a copy by the TMA, which is no access of a warp. It is only reported.
enum Kind : char { READ = 'r', WRITE = 'w', ATOMIC = 'a', BULK = 't' };

struct Range {
  uintptr_t begin = 0, end = 0;
};

struct Access {
  uint32_t jumps;  // back, that the lane has taken since the last pause
  uint32_t path;   // a hash of their targets
  uintptr_t address;
};

// Sums over requests. Global memory has sectors and lines, and shared memory has the other two.
struct Counts {
  uint64_t requests = 0, lanes = 0, used_bytes = 0;
  uint64_t sectors = 0, least_sectors = 0, lines = 0;
  uint64_t phases = 0, wavefronts = 0;

  void operator+=(const Counts& other) {
    requests += other.requests;
    lanes += other.lanes;
    used_bytes += other.used_bytes;
    sectors += other.sectors;
    least_sectors += other.least_sectors;
    lines += other.lines;
    phases += other.phases;
    wavefronts += other.wavefronts;
  }
};

struct Site {
  uintptr_t code;
  Place place;  // where the code cannot tell it
  int memory;
  Kind kind;
  unsigned bytes;
  std::vector<Access> of_lane[WARP];
  uint64_t lost[WARP];  // accesses beyond MAX_RECORDED
  bool touched = false;
  Counts counts{};
  uint64_t executed = 0, diverging = 0;
};

struct Frame {
  uintptr_t block;    // the last basic block
  uint64_t callers;
};

struct Lane {
  std::vector<uint32_t> paths{0};  // after each jump back since the last pause
  std::vector<Frame> frames{{0, 0}};
};

std::vector<Range> buffers;
Range shared[2];  // memory of the running block: declared, and of the launch
std::vector<Lane> lanes;  // of the running block
Lane* lane;               // the running one; null while no kernel runs
unsigned lane_in_warp;
Range stack;  // of the running lane
uint64_t calls;  // of the functions below, in this launch
std::vector<Site> sites;
std::unordered_map<uint64_t, size_t> site_of;
std::vector<size_t> touched;
std::unordered_map<uintptr_t, uint32_t> read_bytes;  // of each sector that the block has read
struct Fetched {
  uint64_t sectors, bytes;
};
std::vector<Fetched> fetched;  // of each buffer

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 29;
}

Range range_of(const void* begin, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  return {address, address + bytes};
}

int memory_of(uintptr_t address) {
  const auto inside = [=](const Range& range) {
    return address >= range.begin && address < range.end;
  };
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (inside(buffers[i])) return static_cast<int>(i);
  }
  return inside(shared[0]) || inside(shared[1]) ? SHARED : LOCAL;
}

void record_one(uintptr_t code, Place place, uintptr_t address, size_t bytes, Kind kind, size_t part) {
  const int memory = memory_of(address);
  if (memory == LOCAL) return;
  uint64_t key = mixed(lane->frames.back().callers, code);
  key = mixed(mixed(key, static_cast<uint64_t>(memory + 1)), part * 64 + bytes);
  key = mixed(mixed(key, static_cast<uint64_t>(place.line)), kind);
  const auto [at, is_new] = site_of.try_emplace(key, sites.size());
  if (is_new) {
    sites.push_back({code, place, memory, kind, static_cast<unsigned>(bytes), {}, {}});
  }
  Site& site = sites[at->second];
  if (!site.touched) {
    site.touched = true;
    touched.push_back(at->second);
  }
  std::vector<Access>& accesses = site.of_lane[lane_in_warp];
  if (accesses.size() < MAX_RECORDED) {
    const auto jumps = static_cast<uint32_t>(lane->paths.size() - 1);
    accesses.push_back({jumps, lane->paths.back(), address});
  } else {
    ++site.lost[lane_in_warp];
  }
  if ((kind == READ || kind == ATOMIC) && memory >= 0) {
    for (size_t done = 0; done < bytes;) {
      const uintptr_t byte = address + done, offset = byte % SECTOR;
      const size_t here = SECTOR - offset < bytes - done ? SECTOR - offset : bytes - done;
      read_bytes[byte / SECTOR] |= static_cast<uint32_t>(((1ull << here) - 1) << offset);
      done += here;
    }
  }
}

// A structure is moved by loads that are as wide as its size allows.
void record(uintptr_t code, Place place, const void* pointer, size_t bytes, Kind kind) {
  ++calls;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (!lane || (address >= stack.begin && address < stack.end)) return;
  size_t width = bytes & -bytes;
  if (width > MAX_VECTOR) width = MAX_VECTOR;
  for (size_t done = 0; done < bytes; done += width) {
    record_one(code, place, address + done, width, kind, done / width);
  }
}

// A set of the words, sectors or lines of a request, in the order in which they came.
struct Few {
  uintptr_t values[WARP * MAX_VECTOR / WORD];
  unsigned count = 0;
  void add(uintptr_t value) {
    for (unsigned i = count; i-- > 0;) {
      if (values[i] == value) return;
    }
    values[count++] = value;
  }
};

// Adds a request of the lanes with an address, the others have 0.
void count(Counts& counts, const Site& site, const uintptr_t (&addresses)[WARP]) {
  ++counts.requests;
  Few elements;
  for (const uintptr_t address : addresses) {
    if (!address) continue;
    ++counts.lanes;
    elements.add(address);
  }
  const uint64_t used = uint64_t{elements.count} * site.bytes;
  counts.used_bytes += used;
  if (site.memory >= 0) {
    Few sectors, lines;
    for (unsigned i = 0; i < elements.count; ++i) {
      const uintptr_t first = elements.values[i], last = first + site.bytes - 1;
      sectors.add(first / SECTOR);
      lines.add(first / LINE);
      if (last / SECTOR != first / SECTOR) sectors.add(last / SECTOR);
      if (last / LINE != first / LINE) lines.add(last / LINE);
    }
    counts.sectors += sectors.count;
    counts.least_sectors += (used + SECTOR - 1) / SECTOR;
    counts.lines += lines.count;
    return;
  }
  // Lanes that move 8 or 16 bytes are served in two or four phases, in order. In a wavefront, each
  // bank serves a word. Two phases of a load become one if all lanes share their address with the
  // lane beside them, or all with the lane after that: counters of an H100 say so.
  unsigned of_phase = site.bytes <= WORD ? WARP : static_cast<unsigned>(PHASE_BYTES / site.bytes);
  const auto share = [&](unsigned distance) {
    for (unsigned i = 0; i < WARP; ++i) {
      const uintptr_t other = addresses[i ^ distance];
      if (addresses[i] && other && addresses[i] != other) return false;
    }
    return true;
  };
  if (of_phase < WARP && site.kind == READ && (share(1) || share(2))) of_phase *= 2;
  const auto most_of_a_bank = [&](const uintptr_t* begin, const uintptr_t* end) {
    Few words;
    for (const uintptr_t* address = begin; address != end; ++address) {
      for (uintptr_t byte = 0; *address && byte < site.bytes; byte += WORD) {
        words.add((*address + byte) / WORD);
      }
    }
    unsigned per_bank[BANKS] = {}, most = 0;
    for (unsigned i = 0; i < words.count; ++i) {
      const unsigned here = ++per_bank[words.values[i] % BANKS];
      if (here > most) most = here;
    }
    return most;
  };
  for (unsigned first = 0; first < WARP; first += of_phase) {
    const unsigned most = most_of_a_bank(addresses + first, addresses + first + of_phase);
    counts.phases += most > 0;
    counts.wavefronts += most;
  }
}

// Makes requests of what the lanes of a warp have recorded at a site since the last pause.
//
// Lanes whose jumps back differ meet again on a GPU where their paths do. An access before a lane's
// last jump back belongs to the iteration of its number. What comes after may stand behind the loop,
// and belongs to the iteration only if the lane that jumped most makes this access in it too.
void match(Site& site, unsigned first_thread) {
  size_t next[WARP] = {};
  unsigned reference = WARP;  // the lane that took the most jumps back
  uint64_t lost = 0;
  const auto jumps = [&](unsigned i) { return lanes[first_thread + i].paths.size() - 1; };
  for (unsigned i = 0; i < WARP; ++i) {
    if (site.of_lane[i].empty()) continue;
    if (reference == WARP || jumps(i) > jumps(reference)) reference = i;
    if (site.lost[i] > lost) lost = site.lost[i];
  }
  const std::vector<uint32_t>& paths = lanes[first_thread + reference].paths;
  Counts counts{};
  bool diverges = false;
  for (;;) {
    uint32_t now = UINT32_MAX;
    for (unsigned i = 0; i < WARP; ++i) {
      if (next[i] == site.of_lane[i].size()) continue;
      const uint32_t earliest = site.of_lane[i][next[i]].jumps;
      if (earliest < now) now = earliest;
    }
    if (now == UINT32_MAX) break;
    uintptr_t addresses[WARP] = {};
    bool perhaps_behind = false;
    for (unsigned i = 0; i < WARP; ++i) {
      if (next[i] == site.of_lane[i].size()) continue;
      const Access& access = site.of_lane[i][next[i]];
      if (access.jumps != now) continue;
      diverges = diverges || access.path != paths[now];
      perhaps_behind = perhaps_behind || (now == jumps(i) && now < jumps(reference));
      addresses[i] = access.address;
      ++next[i];
    }
    diverges = diverges || (perhaps_behind && !addresses[reference]);
    count(counts, site, addresses);
  }
  if (diverges) {
    site.diverging += counts.requests + lost;
  } else {
    site.counts += counts;
    site.executed += counts.requests + lost;
  }
  for (unsigned i = 0; i < WARP; ++i) {
    site.of_lane[i].clear();
    site.lost[i] = 0;
  }
  site.touched = false;
}

}  // namespace
}  // namespace on_cpu

using namespace on_cpu;

// What the runtime calls.
extern "C" {
void on_cpu_buffer(const void* begin, size_t bytes) {
  buffers.push_back(range_of(begin, bytes));
  fetched.resize(buffers.size());
}

void on_cpu_block_starts(unsigned threads, const void* declared, size_t declared_bytes,
                         const void* dynamic, size_t dynamic_bytes) {
  lanes.assign(threads, {});
  shared[0] = range_of(declared, declared_bytes);
  shared[1] = range_of(dynamic, dynamic_bytes);
}

void on_cpu_resumes(unsigned thread, const void* stack_begin, size_t stack_bytes) {
  lane = &lanes[thread];
  lane_in_warp = thread % WARP;
  stack = range_of(stack_begin, stack_bytes);
}

void on_cpu_warp_pauses(unsigned first) {
  lane = nullptr;
  for (const size_t index : touched) match(sites[index], first);
  touched.clear();
  for (unsigned i = first; i < lanes.size() && i < first + WARP; ++i) lanes[i].paths.assign(1, 0);
}

// Returns whether another block is worth its time.
bool on_cpu_block_ends() {
  for (const auto& [sector, bytes] : read_bytes) {
    const int memory = memory_of(sector * SECTOR);
    if (memory < 0) continue;
    ++fetched[memory].sectors;
    fetched[memory].bytes += __builtin_popcount(bytes);
  }
  read_bytes.clear();
  return calls < ENOUGH_CALLS;
}

// The sites and arrays of a launch, a line each; accesses.py reads them.
void on_cpu_report(std::FILE* out, size_t launch, size_t blocks) {
  std::fprintf(out, "launch %zu %zu\n", launch, blocks);
  for (const Site& site : sites) {
    const Counts& c = site.counts;
    std::fprintf(out,
                 "site %" PRIxPTR " %d %c %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                 " %d %s\n",
                 site.code, site.memory, site.kind, site.bytes, site.executed, site.diverging,
                 c.requests, c.lanes, c.used_bytes, c.sectors, c.least_sectors, c.lines,
                 c.phases, c.wavefronts, site.place.line,
                 site.place.file ? site.place.file : "");
  }
  for (size_t i = 0; i < fetched.size(); ++i) {
    std::fprintf(out, "array %zu %" PRIu64 " %" PRIu64 "\n", i, fetched[i].sectors, fetched[i].bytes);
    fetched[i] = {};
  }
  calls = 0;
  sites.clear();
  site_of.clear();
}

void on_cpu_forget_buffers() {
  buffers.clear();
  fetched.clear();
}

// What the kernel calls.
void __tsan_init() {}
void __tsan_func_entry(void* caller) {
  if (!lane) return;
  const Frame frame{0, mixed(lane->frames.back().callers, reinterpret_cast<uintptr_t>(caller))};
  lane->frames.push_back(frame);
}
void __tsan_func_exit() {
  if (lane && lane->frames.size() > 1) lane->frames.pop_back();
}
void __sanitizer_cov_trace_pc() {
  ++calls;
  if (!lane) return;
  const auto block = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  Frame& frame = lane->frames.back();
  if (block <= frame.block) {
    lane->paths.push_back(static_cast<uint32_t>(mixed(lane->paths.back(), block)));
  }
  frame.block = block;
}
}

#include "hooks.h"
