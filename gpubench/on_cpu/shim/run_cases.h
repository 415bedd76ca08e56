// Reads cases from a file, runs them, and writes their outputs. Only runtime.cpp includes it.
#pragma once

namespace on_cpu {
namespace {

template <typename T>
void get(std::FILE* file, T* values, size_t count) {
  if (std::fread(values, sizeof(T), count, file) != count) {
    std::fprintf(stderr, "the cases end early\n");
    std::_Exit(3);
  }
}

int64_t number(std::FILE* file) {
  int64_t value;
  get(file, &value, 1);
  return value;
}

Index index(std::FILE* file) {
  const auto x = number(file), y = number(file), z = number(file);
  return {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

// Runs a case. run.py writes the index of the output buffer, the buffers, and the launches. If
// accesses are recorded, the buffers have no content, and the report replaces the output.
void run_case(std::FILE* in, std::FILE* out) {
  const size_t output = number(in);
  std::vector<void*> buffers(number(in));
  std::vector<size_t> sizes;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const size_t bytes = number(in);
    sizes.push_back(bytes);
    if (on_cpu_buffer) {
      // Only the addresses matter. The pages take no memory until they are accessed.
      buffers[i] = mmap(nullptr, bytes + 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (buffers[i] == MAP_FAILED) std::_Exit(3);
      on_cpu_buffer(buffers[i], bytes);
      continue;
    }
    // Aligned as by cudaMalloc. The allocation ends exactly where the operand ends.
    if (posix_memalign(&buffers[i], 256, bytes) != 0) std::_Exit(3);
    get(in, static_cast<unsigned char*>(buffers[i]), bytes);
  }
  if (!on_cpu_buffer) {
    std::fprintf(stderr, "buffers");
    for (const void* buffer : buffers) std::fprintf(stderr, " %p", buffer);
    std::fprintf(stderr, "\n");
  }
  const size_t launches = number(in);
  for (size_t step = 0; step < launches; ++step) {
    const Instance& instance = instances[number(in)];
    std::fprintf(stderr, "running %s\n", instance.name);
    Launch one{&instance, index(in), index(in), static_cast<size_t>(number(in)), {}};
    std::vector<void*> pointers(number(in));
    for (void*& pointer : pointers) {
      const auto index = static_cast<long long>(number(in));
      pointer = index < 0 ? nullptr : buffers[index];
    }
    std::vector<long long> numbers(number(in));
    for (long long& value : numbers) value = number(in);
    std::vector<Matrix> matrices;
    for (auto maps = number(in); maps > 0; --maps) {
      const auto* const address = static_cast<unsigned char*>(buffers[number(in)]) + number(in);
      const auto rows = number(in), columns = number(in);
      const auto box_rows = number(in), box_columns = number(in);
      matrices.push_back({address, rows, columns, box_rows, box_columns, number(in)});
    }
    // Memory with the size and the alignment of a tensor map, for each matrix.
    struct alignas(64) Room { Matrix matrix; unsigned char rest[128 - sizeof(Matrix)]; };
    std::vector<Room> rooms(matrices.size());
    std::vector<void*> structures;
    for (size_t i = 0; i < matrices.size(); ++i) {
      rooms[i].matrix = matrices[i];
      structures.push_back(&rooms[i]);
    }
    one.arguments = {pointers.data(), numbers.data(), structures.data()};
    std::vector<Index> chosen(number(in));
    for (Index& at : chosen) at = index(in);
    if (one.grid.x == 0) {  // a host function, which makes its own launches
      instance.call(one.arguments);
      continue;
    }
    const size_t blocks = run(one, chosen);
    if (on_cpu_report) on_cpu_report(out, step, blocks);
  }
  if (on_cpu_forget_buffers) {
    on_cpu_forget_buffers();
    for (size_t i = 0; i < buffers.size(); ++i) munmap(buffers[i], sizes[i] + 1);
    return;
  }
  for (size_t i = 0; i <= output; ++i) std::fwrite(buffers[i], 1, sizes[i], out);
  for (void* buffer : buffers) std::free(buffer);
}

}  // namespace
}  // namespace on_cpu
