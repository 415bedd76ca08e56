// check: compares the results of an emulated kernel with whole numbers, and its results of random
// numbers in several schedules with one another. `../emulation.py` writes the cases.

#pragma once

template <typename Item>
struct Step {
  int grid, grid_y, cluster, threads, shared_bytes;
  // array, offset, rows, columns, pitch, box, bytes of an element, swizzle, batch
  std::vector<std::array<long, 10>> boxes;
  // The operands, C, the workspace, M, N, K, the maps.
  void (*kernel)(const std::vector<const void*>&, Item*, Item*, int, int, int, const CUtensorMap*);
};

template <typename Item, typename Number>
struct Case {
  const char* label;
  int batch, m, n, k;
  bool b_along_k;
  bool has_groups;  // whether `offsets` divides rows into `batch` groups, which have m rows on average
  bool is_scaled;  // whether 128 values of k of a row of A, and 128×128 of B, have a scale in `scales`
  size_t workspace_bytes;
  std::vector<Step<Item>> steps;
  double tolerance;  // of results of random numbers, relative to the largest; 0: no check
  bool is_special;   // whether infinity and NaN are tried
  bool has_bias, is_relu, has_residual;  // operations after the product
  std::vector<Item> bias = {}, residual = {};
};

std::vector<float> scales[2];
std::vector<int> offsets;  // the row after the last row of each group

template <typename Item, typename Number>
std::vector<Number> computed(const Case<Item, Number>& one, const std::vector<Item>& a,
                             const std::vector<Item>& b, unsigned seed) {
  constexpr int GUARD = 1024;
  std::vector<Number> c(GUARD + one.batch * one.m * one.n + GUARD);
  std::memset(c.data(), 0xFF, c.size() * sizeof(Number));
  const std::vector<Number> before = c;
  std::vector<unsigned char> workspace(one.workspace_bytes, 0xFF);
  const auto bytes = [](const auto& array) {
    return reinterpret_cast<unsigned char*>(const_cast<void*>(static_cast<const void*>(&array[0])));
  };
  std::vector<unsigned char*> arrays;
  std::vector<size_t> sizes;
  const auto add = [&](const auto& array) {
    if (array.empty()) return;
    arrays.push_back(bytes(array));
    sizes.push_back(array.size() * sizeof array[0]);
  };
  add(a);
  add(b);
  for (const auto& of_operand : scales) {
    if (one.is_scaled) add(of_operand);
  }
  if (one.has_groups) add(offsets);
  add(one.bias);
  add(one.residual);
  const std::vector<const void*> operands(arrays.begin(), arrays.end());
  unsigned char* const result = bytes(c) + GUARD * sizeof(Number);
  arrays.insert(arrays.end(), {result, workspace.data()});
  sizes.insert(sizes.end(), {(c.size() - 2 * GUARD) * sizeof(Number), workspace.size()});
  for (int i = 0; i < 2; ++i) {
    emulated::inputs[i] = arrays[i];
    emulated::inputs_end[i] = arrays[i] + sizes[i];
  }
  for (const Step<Item>& step : one.steps) {
    CUtensorMap maps[4];
    for (size_t i = 0; i < step.boxes.size(); ++i) {
      const auto& [array, offset, rows, columns, pitch, box_rows, box_columns, item, swizzle,
                   batch] = step.boxes[i];
      const emulated::Map map{arrays[array] + offset, rows, columns, pitch,
                              box_rows, box_columns, item, swizzle, batch};
      const long all_rows = rows * std::max(batch, 1l);
      if (offset + ((all_rows - 1) * pitch + columns) * item > long(sizes[array])) {
        emulated::fail("a map that ends behind its array");
      }
      std::memcpy(&maps[i], &map, sizeof map);
    }
    emulated::launch({unsigned(step.grid), unsigned(step.grid_y), 1}, step.cluster, step.threads,
                     step.shared_bytes, seed, [&] {
      step.kernel(operands, reinterpret_cast<Item*>(result),
                  reinterpret_cast<Item*>(workspace.data()), one.m, one.n, one.k, maps);
    });
  }
  for (int i = 0; i < GUARD; ++i) {
    const size_t last = c.size() - 1 - i;
    if (std::memcmp(&c[i], &before[i], sizeof(Number)) ||
        std::memcmp(&c[last], &before[last], sizeof(Number))) {
      emulated::fail(std::string(one.label) + ": stores outside of C");
    }
  }
  return {c.begin() + GUARD, c.end() - GUARD};
}

template <typename Item, typename Number>
std::vector<double> product(const Case<Item, Number>& one, const std::vector<Item>& a,
                            const std::vector<Item>& b) {
  std::vector<double> c(one.batch * one.m * one.n);
  const auto scale = [&](int i, int j, int k) {
    const int block = k / 128, blocks = (one.k + 127) / 128;
    if (!one.is_scaled) return 1.0;
    return double(scales[0][block * one.m + i]) * scales[1][j / 128 * blocks + block];
  };
  for (int i = 0; i < one.batch * one.m; ++i) {
    int product = i / one.m;
    if (one.has_groups) {
      product = std::upper_bound(offsets.begin(), offsets.end(), i) - offsets.begin();
    }
    const Item* const of_row = b.data() + product * one.k * one.n;
    for (int k = 0; k < one.k; ++k) {
      for (int j = 0; j < one.n; ++j) {
        c[i * one.n + j] +=
            scale(i, j, k) * double(a[i * one.k + k]) * of_row[one.b_along_k ? j * one.k + k : k * one.n + j];
      }
    }
    for (int j = 0; j < one.n; ++j) {
      double& element = c[i * one.n + j];
      if (one.has_bias) element += double(one.bias[j]);
      if (one.is_relu) element = std::max(element, 0.0);
      if (one.has_residual) element += double(one.residual[i * one.n + j]);
    }
  }
  return c;
}

// Infinity, NaN, a number that bfloat16 rounds to infinity, and a number that it rounds to zero.
template <typename Item, typename Number>
void check_special(const Case<Item, Number>& one, std::vector<Item> a, std::vector<Item> b) {
  const size_t middle = one.k / 2;
  a[0] = INFINITY, b[0] = 0;
  a[a.size() - 1] = NAN;
  b[b.size() - 1] = -INFINITY;
  a[one.m / 2 * one.k + middle] = 3.395e38f;
  for (int j = 0; j < one.n; ++j) b[middle * one.n + j] = j % 7 * 1e-3f;
  a[one.m / 3 * one.k + one.k / 3] = 1e-42f;
  const auto right = product(one, a, b);
  std::vector<Item> a_sizes = a, b_sizes = b;
  for (auto& x : a_sizes) x = std::fabs(x);
  for (auto& x : b_sizes) x = std::fabs(x);
  const auto sizes = product(one, a_sizes, b_sizes);
  const auto result = computed(one, a, b, 4);
  for (size_t i = 0; i < right.size(); ++i) {
    const double found = result[i];
    const bool as_right = std::isnan(right[i])   ? std::isnan(found)
                          : std::isinf(right[i]) ? found == right[i]
                                                 : std::fabs(found - right[i]) <=
                                                       one.tolerance * sizes[i];
    if (!as_right) {
      emulated::fail(std::string(one.label) + ": special " + std::to_string(found) + " for " +
                     std::to_string(right[i]));
    }
  }
}

template <typename Item, typename Number>
void check(Case<Item, Number> one) {
  std::mt19937 draw(one.m * 31 + one.n * 7 + one.k);
  one.bias.resize(one.has_bias * one.n);
  one.residual.resize(one.has_residual * one.m * one.n);
  for (auto* array : {&one.bias, &one.residual}) {
    for (auto& x : *array) x = int(draw() % 200) - 100;
  }
  std::vector<Item> a(one.batch * one.m * one.k), b(one.batch * one.k * one.n);
  for (auto& x : a) x = int(draw() % 3) + 1 - int(draw() % 2) * 4;  // never 0
  for (auto& x : b) x = int(draw() % 3) + 1 - int(draw() % 2) * 4;
  if (one.has_groups) {
    offsets.resize(one.batch);
    for (int& x : offsets) x = draw() % (one.batch * one.m + 1);
    std::sort(offsets.begin(), offsets.end());
    offsets.back() = one.batch * one.m;
    if (one.batch > 3) offsets[1] = offsets[2] = offsets[0];  // two groups are empty
  }
  if (one.is_scaled) {
    const int blocks = (one.k + 127) / 128;
    scales[0].resize(blocks * one.m), scales[1].resize((one.n + 127) / 128 * blocks);
    for (auto& of_operand : scales) {
      for (float& x : of_operand) x = std::ldexp(1.0f, int(draw() % 4));
    }
  }
  const auto c = product(one, a, b);
  const auto result = computed(one, a, b, 1);
  for (int i = 0; i < one.batch * one.m * one.n; ++i) {
    if (!(result[i] == static_cast<Number>(c[i]))) {
      emulated::fail(std::string(one.label) + ": element " + std::to_string(i / one.n) + ", " +
                     std::to_string(i % one.n) + " is " + std::to_string(double(result[i])) +
                     ", not " + std::to_string(c[i]));
    }
  }
  for (auto& x : a) x = Item(draw() % 100) / Item(7);
  for (auto& x : b) x = Item(draw() % 100) / Item(11);
  const auto first = computed(one, a, b, 2), second = computed(one, a, b, 3);
  if (one.tolerance) {
    const auto right = product(one, a, b);
    const double largest = *std::max_element(right.begin(), right.end());
    for (size_t i = 0; i < right.size(); ++i) {
      if (!(std::fabs(double(first[i]) - right[i]) <= one.tolerance * largest)) {
        emulated::fail(std::string(one.label) + ": " + std::to_string(double(first[i])) + " for " +
                       std::to_string(right[i]));
      }
    }
  }
  if (std::memcmp(first.data(), second.data(), first.size() * sizeof(Number))) {
    emulated::fail(std::string(one.label) + ": the result depends on the schedule");
  }
  if (one.is_special) check_special(one, a, b);
  std::printf("right: %s\n", one.label);
}
