// The instructions and launches that emulator.h declares, compiled once for all programs.
#include "emulator.h"

namespace emulated {
namespace {

struct BoxCopy {
  Map map;
  unsigned to, barrier;
  long row, column;
  unsigned matrix, mask;  // of blocks
};

std::vector<BoxCopy> box_copies;
Barrier cluster_barrier;
int cluster_live;
std::mt19937 order;
std::function<void()> entry;

void resume(Fiber& fiber) {
  current = &fiber;
  if (_setjmp(scheduler)) return;
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  setcontext(&fiber.context);
}
unsigned char* place(unsigned address) {
  const unsigned rank = address >> RANK_SHIFT;
  if (rank > blocks.size()) fail("an address of a block outside the cluster");
  Block& block = rank ? blocks[rank - 1] : *current->block;
  return block.shared + (address & ((1 << RANK_SHIFT) - 1));
}
// The map of an instruction that has two or three coordinates.
Map map_of(const Operand& operand, std::string_view text) {
  Map map;
  std::memcpy(&map, operand.as<const void*>(), sizeof map);
  if ((map.batch > 0) != (text.find(".tensor.3d.") != text.npos)) fail("a map of another rank");
  return map;
}
// The byte of a matrix that follows `before` bytes of its row, or null outside of the matrix.
unsigned char* byte_of(const Map& map, unsigned matrix, long row, long column, long byte) {
  column += byte / map.item_bytes;
  if (row < 0 || row >= map.rows || column < 0 || column >= map.columns) return nullptr;
  if (matrix >= std::max(map.batch, 1l)) return nullptr;
  return map.address + ((matrix * map.rows + row) * map.pitch + column) * map.item_bytes +
         byte % map.item_bytes;
}
Mbarrier& mbarrier(Block& block, unsigned offset) {
  auto found = block.mbarriers.find(offset & ((1 << RANK_SHIFT) - 1));
  if (found == block.mbarriers.end()) fail("an mbarrier that was not initialized");
  return found->second;
}
void settle(Mbarrier& barrier) {
  if (barrier.pending < 0) fail("more arrivals at an mbarrier than it counts");
  if (barrier.pending == 0 && barrier.bytes == 0) {
    barrier.pending = barrier.arrivals;
    ++barrier.phase;
    progress = true;
  }
}

void settle_cluster() {
  if (cluster_barrier.arrived > 0 && cluster_barrier.arrived == cluster_live) {
    cluster_barrier.arrived = 0;
    ++cluster_barrier.generation;
    progress = true;
  }
}

void finish(const BoxCopy& copy) {
  const Map& map = copy.map;
  const size_t row_bytes = map.box_columns * map.item_bytes;
  const size_t pitch = map.swizzle_bytes ? map.swizzle_bytes : row_bytes;
  for (size_t rank = 0; rank < blocks.size(); ++rank) {
    if (!(copy.mask >> rank & 1)) continue;
    unsigned char* const shared = blocks[rank].shared;
    const unsigned to = copy.to & ((1 << RANK_SHIFT) - 1);
    for (long r = 0; r < map.box_rows; ++r) {
      for (size_t b = 0; b < row_bytes; ++b) {
        const auto* const from = byte_of(map, copy.matrix, copy.row + r, copy.column, b);
        unsigned at = to + r * pitch + b;
        if (map.swizzle_bytes == 128) at ^= (at >> 7 & 7) << 4;
        shared[at] = from ? *from : 0;
      }
    }
    Mbarrier& barrier = mbarrier(blocks[rank], copy.barrier);
    barrier.bytes -= map.box_rows * row_bytes;
    settle(barrier);
  }
  progress = true;
}

void request(const BoxCopy& copy) {
  const size_t bytes = copy.map.box_rows * copy.map.box_columns * copy.map.item_bytes;
  const unsigned to = copy.to & ((1 << RANK_SHIFT) - 1);
  if (copy.column * copy.map.item_bytes % 16 || copy.map.pitch * copy.map.item_bytes % 16) {
    fail("a box or a row that does not begin at a multiple of 16 bytes");
  }
  if (to % (copy.map.swizzle_bytes ? 1024 : 128)) fail("a box does not begin where the swizzle does");
  for (size_t rank = 0; rank < blocks.size(); ++rank) {
    if (copy.mask >> rank & 1) std::memset(blocks[rank].shared + to, 0xFF, bytes);
  }
  box_copies.push_back(copy);
}

// ---- instructions

void move_words(std::string_view text, const Operand* o, unsigned address_at) {
  const bool store = text.substr(0, 2) == "st";
  const unsigned address = o[address_at].number();
  const size_t dot = text.find(".v");
  const int count = dot == text.npos ? 1 : text[dot + 2] - '0';
  const int bytes = o[store ? 1 : 0].bytes;
  if (text.find(bytes == 8 ? "64 " : bytes == 2 ? "16 " : "32 ") == text.npos) fail("operands of another type");
  if (address % (count * bytes)) fail("an address in shared memory that is not aligned");
  for (int i = 0; i < count; ++i) {
    unsigned char* const at = place(address) + i * bytes;
    if (store) {
      std::memcpy(at, &o[1 + i].bits, bytes);
    } else {
      std::memcpy(o[i].address, at, bytes);
    }
  }
}

void multiply_float64(const Operand* o) {
  for (int i = 0; i < 12; ++i) current->offered[i] = o[4 + i].as<double>();
  meet_warp();
  const int g = current->thread % 32 / 4, t = current->thread % 4;
  for (int d = 0; d < 4; ++d) {
    const int row = g + d / 2 * 8, column = 2 * t + d % 2;
    double sum = o[d].as<double>();
    for (int k = 0; k < 16; ++k) {
      const double a = lane(row % 8 * 4 + k % 4).offered[k / 4 * 2 + row / 8];
      const double b = lane(column * 4 + k % 4).offered[8 + k / 4];
      sum = std::fma(a, b, sum);
    }
    o[d].set(sum);
  }
  meet_warp();
}

// An element of an operand with the swizzle of 128 bytes. `descriptor` has the first address. If the
// elements do not lie along k, it has from bit 16 on the distance between parts of 128 bytes.
template <typename Item>
Item element(const unsigned char* shared, uint64_t descriptor, bool along_k, int index, int k) {
  constexpr int ACROSS = 128 / sizeof(Item);
  const int parts = along_k ? 0 : index / ACROSS * (descriptor >> 16 & 0x3FFF) * 16;
  const int row = along_k ? index : k, column = along_k ? k : index % ACROSS;
  const unsigned plain = (descriptor & 0x3FFF) * 16 + parts + row * 128 + column * sizeof(Item);
  std::array<unsigned char, sizeof(Item)> bytes;
  std::memcpy(&bytes, shared + (plain ^ (plain >> 7 & 7) << 4), sizeof bytes);
  return std::bit_cast<Item>(bytes);
}

// Reads 32 bytes of k of a row of A or a column of B. The swizzle keeps 16 bytes together.
template <typename Item, typename Number>
void read_along_k(const unsigned char* shared, uint64_t descriptor, bool along_k, int index,
                  Number* to) {
  constexpr int DEPTH = 32 / sizeof(Item);
  if (!along_k) {
    for (int k = 0; k < DEPTH; ++k) to[k] = element<Item>(shared, descriptor, false, index, k);
    return;
  }
  std::array<std::array<unsigned char, sizeof(Item)>, DEPTH> items;  // nothing is constructed
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned plain = (descriptor & 0x3FFF) * 16 + index * 128 + half * 16;
    std::memcpy(&items[half * DEPTH / 2], shared + (plain ^ (plain >> 7 & 7) << 4), 16);
  }
  for (int k = 0; k < DEPTH; ++k) to[k] = std::bit_cast<Item>(items[k]);
}

// Starts to multiply 64 rows by `columns` columns, for 32 bytes of k. With 16 bits, the last two flags
// are 1 if an operand does not lie along k.
template <typename Item, typename Number>
void start_product(std::string_view text, const Operand* o) {
  const int columns = std::atoi(text.data() + text.find("m64n") + 4);
  const size_t flags = text.find("add, 1, 1, ");
  const bool of_16 = sizeof(Item) == 2;
  const bool a_along_k = !of_16 || text[flags + 11] == '0';
  const bool b_along_k = !of_16 || text[flags + 14] == '0';
  const std::vector<Operand> sums(o, o + columns / 2);
  const uint64_t a = o[columns / 2].as<uint64_t>(), b = o[columns / 2 + 1].as<uint64_t>();
  const bool add = o[columns / 2 + 2].as<int>();
  Fiber* const self = current;
  const auto execute = [=] {
    constexpr int DEPTH = 32 / sizeof(Item);
    const int t = self->thread % 128, row = t / 32 * 16 + t % 32 / 4;
    const unsigned char* const shared = self->block->shared;
    Number of_rows[2][DEPTH], of_column[DEPTH];  // for rows g and g + 8 of the warp
    for (int half = 0; half < 2; ++half) {
      read_along_k<Item>(shared, a, a_along_k, row + half * 8, of_rows[half]);
    }
    for (size_t pair = 0; pair < sums.size() / 2; ++pair) {
      const int column = pair / 2 * 8 + t % 4 * 2 + pair % 2;
      read_along_k<Item>(shared, b, b_along_k, column, of_column);
      for (int half = 0; half < 2; ++half) {
        const Operand& to = sums[pair / 2 * 4 + half * 2 + pair % 2];
        Number sum = add ? to.as<Number>() : 0;
        for (int k = 0; k < DEPTH; ++k) sum += of_rows[half][k] * of_column[k];
        to.set(sum);
      }
    }
  };
  current->products.push_back({execute, current->product_groups});
}

// Stores matrices of 8×8 elements of 16 bits: each lane has the address of a row of 16 bytes.
void store_matrices(const Operand* o, int count, bool transposed) {
  for (int i = 0; i <= count; ++i) current->offered[i] = o[i].number();
  meet_warp();
  const int matrix = current->thread % 32 / 8, row = current->thread % 8;
  if (matrix < count) {
    const unsigned to = o[0].number();
    if (to % 16) fail("a row of a matrix that is not aligned");
    for (int column = 0; column < 8; ++column) {
      const int r = transposed ? column : row, c = transposed ? row : column;
      const unsigned pair = lane(r * 4 + c / 2).offered[1 + matrix];
      const uint16_t item = pair >> c % 2 * 16;
      std::memcpy(place(to) + column * 2, &item, sizeof item);
    }
  }
  meet_warp();
}

// Reads matrices of 8×8 elements of 16 bits. A register gets two neighbours of a row.
void load_matrices(const Operand* o, int count, bool transposed) {
  current->offered[0] = o[count].number();
  meet_warp();
  const int t = current->thread % 32;
  for (int i = 0; i < count; ++i) {
    unsigned pair = 0;
    for (int half = 0; half < 2; ++half) {
      const int r = t / 4, c = t % 4 * 2 + half;
      const unsigned from = lane(i * 8 + (transposed ? c : r)).offered[0];
      if (from % 16) fail("a row of a matrix that is not aligned");
      uint16_t item;
      std::memcpy(&item, place(from) + (transposed ? r : c) * 2, sizeof item);
      pair |= unsigned(item) << half * 16;
    }
    o[i].set(pair);
  }
  meet_warp();
}

std::vector<unsigned char> content_of(const BoxStore& store) {
  const Map& map = store.map;
  const long row_bytes = map.box_columns * map.item_bytes;
  std::vector<unsigned char> content(map.box_rows * row_bytes);
  for (size_t i = 0; i < content.size(); ++i) {
    const unsigned plain = store.from + i;
    content[i] = current->block->shared[plain ^ (plain >> 7 & 7) << 4];
  }
  return content;
}

// Stores the boxes of this thread, except for the last `pending` boxes.
void finish_stores(size_t pending) {
  auto& stores = current->stores;
  const size_t count = stores.size() - std::min(pending, stores.size());
  for (size_t s = 0; s < count; ++s) {
    const BoxStore& store = stores[s];
    if (content_of(store) != store.content) fail("a box that changed before it was stored");
    const Map& map = store.map;
    for (size_t i = 0; i < store.content.size(); ++i) {
      const long row_bytes = map.box_columns * map.item_bytes;
      auto* const to = byte_of(map, store.matrix, store.row + i / row_bytes, store.column,
                               i % row_bytes);
      if (to) *to = store.content[i];
    }
  }
  stores.erase(stores.begin(), stores.begin() + count);
}

// Starts to multiply 8 values of k of TF32. The 64 rows come from the registers of each warp.
void start_tf32(std::string_view text, const Operand* o) {
  const int columns = std::atoi(text.data() + text.find("m64n") + 4);
  const std::vector<Operand> sums(o, o + columns / 2);
  for (int i = 0; i < 4; ++i) current->offered[i] = o[columns / 2 + i].as<float>();
  const uint64_t descriptor = o[columns / 2 + 4].as<uint64_t>();
  const bool add = o[columns / 2 + 5].as<int>();
  meet_warp();
  std::array<std::array<float, 8>, 2> rows;  // rows g and g + 8 of the warp
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 8; ++k) {
      rows[half][k] = lane(current->thread % 32 / 4 * 4 + k % 4).offered[k / 4 * 2 + half];
    }
  }
  meet_warp();
  Fiber* const self = current;
  const auto execute = [=] {
    for (size_t i = 0; i < sums.size(); ++i) {
      const int column = i / 4 * 8 + self->thread % 4 * 2 + i % 2;
      float sum = add ? sums[i].as<float>() : 0;
      for (int k = 0; k < 8; ++k) {
        const unsigned plain = (descriptor & 0x3FFF) * 16 + column * 128 + k * 4;
        float value;
        std::memcpy(&value, self->block->shared + (plain ^ (plain >> 7 & 7) << 4), sizeof value);
        sum += rows[i / 2 % 2][k] * value;
      }
      sums[i].set(sum);
    }
  };
  current->products.push_back({execute, current->product_groups});
}

void await_products(int pending) {
  Barrier& warpgroup = current->block->warpgroups[current->thread / 128];
  meet(warpgroup, 128);
  std::vector<Product> later;
  for (const Product& product : current->products) {
    if (product.group < current->product_groups - pending) {
      product.execute();
    } else {
      later.push_back(product);
    }
  }
  current->products = later;
  meet(warpgroup, 128);
}

// ---- launches

void run_fiber() {
  entry();
  if (!current->copies.empty()) fail("a copy that is still pending when its thread ends");
  if (!current->stores.empty()) fail("a box that nobody has waited for");
  if (!current->products.empty()) fail("a product that nobody has waited for");
  current->finished = true;
  progress = true;
  --current->block->live;
  --warp().live;
  --cluster_live;
  settle_cluster();
  yield();
}

}  // namespace

void ptx(std::string_view text, std::initializer_list<Operand> operands) {
  const Operand* const o = operands.begin();
  const auto is = [&](std::string_view begin) { return text.substr(0, begin.size()) == begin; };
  const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
  Block& block = *current->block;
  if (text.empty() || is("fence.") || is("griddepcontrol.") || is("setmaxnreg.") ||
      is("prefetch") || is("wgmma.fence")) {
  } else if (is("mov.u32 %0, %%cluster_ctarank")) {
    o[0].set<unsigned>(current->rank);
  } else if (is("ld.shared.") || is("ld.shared::cluster.")) {
    move_words(text, o, operands.size() - 1);
  } else if (is("st.shared.")) {
    move_words(text, o, 0);
  } else if (is("mapa.shared::cluster.u32 %0, %1, %2;")) {
    o[0].set<unsigned>(o[1].number() | (o[2].number() + 1) << RANK_SHIFT);
  } else if (is("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64")) {
    multiply_float64(o);
  } else if (has("wgmma.mma_async.sync.aligned.m64n") && has("k32.s32.s8.s8")) {
    start_product<signed char, int>(text, o);
  } else if (has("wgmma.mma_async.sync.aligned.m64n") && has("k32.f32.e4m3.e4m3")) {
    start_product<__nv_fp8_e4m3, float>(text, o);
  } else if (has("wgmma.mma_async.sync.aligned.m64n") && has("k16.f32.bf16.bf16")) {
    start_product<__nv_bfloat16, float>(text, o);
  } else if (has("wgmma.mma_async.sync.aligned.m64n") && has("k8.f32.tf32.tf32")) {
    start_tf32(text, o);
  } else if (is("wgmma.commit_group")) {
    ++current->product_groups;
  } else if (is("wgmma.wait_group")) {
    await_products(o[0].number());
  } else if (is("bar.sync %0, ")) {
    meet(block.named[o[0].number()], std::atoi(text.data() + 13));
  } else if (is("bar.arrive %0, ")) {
    arrive(block.named[o[0].number()], std::atoi(text.data() + 15));
  } else if (is("cvt.rn.bf16x2.f32 %0, %1, %2;")) {
    const __nv_bfloat16 high(o[1].as<float>()), low(o[2].as<float>());
    o[0].set<unsigned>(high.bits << 16 | low.bits);
  } else if (is("ex2.approx.ftz.f32 %0, %1;")) {
    o[0].set(std::exp2(o[1].as<float>()));
  } else if (is("rcp.approx.ftz.f32 %0, %1;")) {
    o[0].set(1 / o[1].as<float>());
  } else if (is("ldmatrix.sync.aligned.m8n8.x")) {
    load_matrices(o, text[28] - '0', has(".trans."));
  } else if (is("stmatrix.sync.aligned.m8n8.x")) {
    store_matrices(o, text[28] - '0', has(".trans."));
  } else if (is("cp.async.bulk.tensor.") && has("d.global.shared::cta.bulk_group")) {
    BoxStore store{map_of(o[0], text), o[3].number(), o[2].as<int>(), o[1].as<int>(), 0, {}};
    if (store.map.batch) store.matrix = o[5].number();
    store.content = content_of(store);
    current->stores.push_back(store);
  } else if (is("cp.async.bulk.commit_group;")) {
  } else if (is("cp.async.bulk.wait_group.read %0;")) {
    finish_stores(o[0].number());
  } else if (is("mov.b32 %0, %1;")) {
    o[0].set<unsigned>(o[1].number());
  } else if (is("bar.sync ") && has(", %0;")) {
    meet(block.named[std::atoi(text.data() + 9)], o[0].number());
  } else if (is("barrier.cluster.arrive")) {
    current->cluster_generation = cluster_barrier.generation;
    ++cluster_barrier.arrived;
    settle_cluster();
  } else if (is("barrier.cluster.wait")) {
    wait_until([&] { return cluster_barrier.generation > current->cluster_generation; });
  } else if (is("mbarrier.init")) {
    block.mbarriers[o[0].number()] = {static_cast<int>(o[1].number()),
                                      static_cast<int>(o[1].number()), 0, 0};
  } else if (is("mbarrier.arrive.expect_tx")) {
    Mbarrier& barrier = mbarrier(block, o[0].number());
    barrier.bytes += o[1].number();
    --barrier.pending;
    settle(barrier);
  } else if (is("mbarrier.arrive.shared::cta")) {
    Mbarrier& barrier = mbarrier(block, o[0].number());
    --barrier.pending;
    settle(barrier);
  } else if (has("mapa.shared::cluster.u32 remote, %0, %1;\nmbarrier.arrive")) {
    if (o[1].number() >= blocks.size()) fail("an arrival outside the cluster");
    if (blocks[o[1].number()].live == 0) fail("an arrival at a block that has ended");
    Mbarrier& barrier = mbarrier(blocks[o[1].number()], o[0].number());
    --barrier.pending;
    settle(barrier);
  } else if (has("mbarrier.try_wait.parity")) {
    Mbarrier& barrier = mbarrier(block, o[0].number());
    wait_until([&] { return barrier.phase % 2 != o[1].number(); });
  } else if (is("cp.async.bulk.tensor.") && has("d.shared::cluster.global")) {
    const bool multicast = has(".multicast::cluster");
    // [to], [map, {column, row}], [barrier], matrix if there are several, mask if multicast
    BoxCopy copy{};
    copy.map = map_of(o[1], text);
    copy.to = o[0].number();
    copy.column = o[2].as<int>();
    copy.row = o[3].as<int>();
    copy.barrier = o[4].number();
    if (copy.map.batch) copy.matrix = o[5].number();
    const int last = copy.map.batch ? 6 : 5;
    copy.mask = multicast ? o[last].as<unsigned short>() : 1u << current->rank;
    if (copy.mask >> blocks.size()) fail("a copy to a block outside the cluster");
    request(copy);
  } else if (is("cp.async.cg.shared.global") || is("cp.async.ca.shared.global")) {
    const bool is_16 = has(", 16, ");
    const int bytes = is_16 ? 16 : o[2].number();
    const int read = o[is_16 ? 2 : 3].as<int>();
    const auto* from = o[1].as<const unsigned char*>();
    const bool inside = (from >= inputs[0] && from + bytes <= inputs_end[0]) ||
                        (from >= inputs[1] && from + bytes <= inputs_end[1]);
    if (read && !inside) fail("a copy from outside of A and B");
    if (reinterpret_cast<size_t>(from) % bytes || o[0].number() % bytes) {
      fail("a copy that is not aligned");
    }
    unsigned char* const to = place(o[0].number());
    std::memset(to, 0xFF, bytes);
    static const unsigned char zeros[16] = {};
    current->copies.push_back({to, read ? from : zeros, bytes, current->groups});
  } else if (is("cp.async.commit_group")) {
    ++current->groups;
  } else if (is("cp.async.wait_group")) {
    std::vector<AsyncCopy> pending;
    for (const AsyncCopy& copy : current->copies) {
      if (copy.group < current->groups - static_cast<int>(o[0].number())) {
        std::memcpy(copy.to, copy.from, copy.bytes);
      } else {
        pending.push_back(copy);
      }
    }
    current->copies = pending;
  } else {
    fail("an instruction that is not emulated: " + std::string(text));
  }
}

// Runs all blocks, one cluster after another.
void launch(Index blocks_of_grid, int cluster, int block_threads, size_t shared_bytes,
                   unsigned seed, std::function<void()> kernel) {
  order.seed(seed);
  entry = std::move(kernel);
  grid = blocks_of_grid;
  threads = {static_cast<unsigned>(block_threads), 1, 1};
  const int count = grid.x * grid.y * grid.z;
  if (count % cluster) fail("a grid that is not whole clusters");
  if (shared_bytes > SHARED_BYTES - STATIC_BYTES) fail("too much shared memory");
  for (int first = 0; first < count; first += cluster) {
    blocks.clear();
    fibers.clear();
    box_copies.clear();
    warps.assign(cluster * ((block_threads + 31) / 32), {});
    cluster_barrier = {};
    cluster_live = cluster * block_threads;
    for (int rank = 0; rank < cluster; ++rank) {
      auto* const shared =
          static_cast<unsigned char*>(std::aligned_alloc(1024, SHARED_BYTES));
      std::memset(shared, 0xFF, SHARED_BYTES);
      blocks.push_back({shared, first + rank, block_threads});
    }
    for (int rank = 0; rank < cluster; ++rank) {
      for (int t = 0; t < block_threads; ++t) {
        auto fiber = std::make_unique<Fiber>();
        fiber->block = &blocks[rank];
        fiber->thread = t;
        fiber->rank = rank;
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = fiber->stack.get();
        fiber->context.uc_stack.ss_size = STACK_BYTES;
        makecontext(&fiber->context, run_fiber, 0);
        fibers.push_back(std::move(fiber));
      }
    }
    // Some warps are slower: they do not run in most rounds.
    std::vector<unsigned> pauses(warps.size());
    for (unsigned& pause : pauses) pause = order() % 3 * 3;
    std::vector<Fiber*> alive;
    for (auto& fiber : fibers) alive.push_back(fiber.get());
    for (int idle = 0; !alive.empty();) {
      progress = false;
      // Warps run in random order, and the lanes of a warp together, as on most GPUs.
      std::vector<std::pair<unsigned, Fiber*>> keyed;
      std::map<std::pair<int, int>, unsigned> key;
      for (Fiber* fiber : alive) {
        auto [at, fresh] = key.try_emplace({fiber->rank, fiber->thread / 32}, 0);
        if (fresh) at->second = order();
        const size_t number = &warp_of(*fiber) - warps.data();
        if (at->second % 8 >= pauses[number]) keyed.push_back({at->second, fiber});
      }
      std::stable_sort(keyed.begin(), keyed.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (auto& [_, fiber] : keyed) {
        resume(*fiber);
      }
      std::erase_if(alive, [](const Fiber* fiber) { return fiber->finished; });
      std::vector<BoxCopy> later;
      for (const BoxCopy& copy : box_copies) {
        if (order() % 3) {
          later.push_back(copy);
        } else {
          finish(copy);
        }
      }
      box_copies = later;
      idle = progress ? 0 : idle + 1;
      if (idle > 200) fail("threads wait for ever");
    }
    if (!box_copies.empty()) fail("a copy is under way when its cluster ends");
    for (Block& block : blocks) std::free(block.shared);
  }
}

}  // namespace emulated
