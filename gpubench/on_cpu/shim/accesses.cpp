// Records the accesses of sampled blocks, and counts the requests to a GPU's memory that they need.
//
// g++ -fsanitize=thread adds a call before each access, and -fsanitize-coverage=trace-pc adds a
// call in each basic block. ThreadSanitizer defines the called functions to find races; here they
// record. The lanes of a warp run one after another, so their accesses are matched when the warp
// pauses at a barrier or ends. A request has the accesses of all lanes to the same site in the same
// iteration.
//
// - A site is an instruction, identified by its address, its callers, and the accessed array.
// - The number of an iteration is the number of jumps back that a lane has taken since the last
//   pause. If lanes took different jumps back and cannot be matched, their requests count as
//   diverging, and have no other counts.
//
// This file is compiled without a sanitizer (see runtime.h).

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
constexpr uintptr_t PHASE_BYTES = 128;  // maximum bytes in a phase of a request to shared memory
constexpr size_t MAX_VECTOR = 16;       // bytes of a thread's widest load
constexpr size_t MAX_RECORDED = 4096;   // maximum accesses of a lane at a site until a pause

constexpr uint64_t ENOUGH_CALLS = 1 << 24;  // number of calls after which no more blocks run

// The memory of an address: the index of a buffer, or one of these numbers.
constexpr int SHARED = -1, LOCAL = -2;

// BULK is a copy by the TMA, which is not an access by a warp. It is only reported.
enum Kind : char { READ = 'r', WRITE = 'w', ATOMIC = 'a', BULK = 't' };

struct Range {
  uintptr_t begin = 0, end = 0;
};

struct Access {
  uint32_t jumps;  // number of jumps back that the lane has taken since the last pause
  uint32_t path;   // a hash of the targets of these jumps
  uintptr_t address;
};

// Sums over requests. Only global memory has sectors and lines; only shared memory has phases and
// wavefronts.
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
  Place place;  // file and line, if `code` is 0
  int memory;
  Kind kind;
  unsigned bytes;
  std::vector<Access> of_lane[WARP];
  uint64_t lost[WARP];  // number of accesses beyond MAX_RECORDED
  bool touched = false;
  Counts counts{};
  uint64_t executed = 0, diverging = 0;
};

struct Frame {
  uintptr_t block;    // the last basic block
  uint64_t callers;
};

struct Lane {
  std::vector<uint32_t> paths{0};  // `Access::path` after each jump back since the last pause
  std::vector<Frame> frames{{0, 0}};
};

std::vector<Range> buffers;
Range shared[2];  // shared memory of the running block: static and dynamic
std::vector<Lane> lanes;  // the lanes of the running block
Lane* lane;               // the running lane; null while no kernel runs
unsigned lane_in_warp;
Range stack;  // the stack of the running lane
uint64_t calls;  // number of calls of the functions below, in this launch
std::vector<Site> sites;
std::unordered_map<uint64_t, size_t> site_of;
std::vector<size_t> touched;
std::unordered_map<uintptr_t, uint32_t> read_bytes;  // by sector: a bit for each byte read
struct Fetched {
  uint64_t sectors, bytes;
};
std::vector<Fetched> fetched;  // for each buffer

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

// Records an access. A structure is split into the widest accesses that its size allows.
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

// The set of the words, sectors or lines of a request, in the order of their first access.
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

// Counts a request of the lanes that have an address. All other lanes have the address 0.
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
  // If each lane moves 8 or 16 bytes, a warp is served in two or four phases, in the order of the
  // lanes. In a wavefront, each bank serves a word. Two phases of a load become one phase if every
  // lane has the address of its neighbour (lane ^ 1), or every lane has the address of lane ^ 2, as
  // counters of an H100 show.
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

// Combines the accesses that a warp's lanes recorded at a site since the last pause to requests.
//
// On a GPU, lanes with different jumps back run together again where their paths meet. An access
// before a lane's last jump back belongs to the iteration with its number. A later access may be
// behind the loop. It belongs to the iteration only if the lane with the most jumps back also makes
// this access in that iteration.
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

// The functions that the runtime calls.
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

// Returns whether another block shall run.
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

// Prints a line for each site and each array of a launch. accesses.py reads these lines.
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

// The functions that the kernel calls.
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
