// Prints numbers of the kernels' index maps, a line for each map, for tests/kernels/test_index_maps.py.
#include "cuda.h"
#undef __shared__
#define __shared__  // for kernels in the headers that this program does not launch
#include "gemm/dmma.cu"
#include "lib/cluster/split_sums.cuh"
#include "lib/mma/tf32.cuh"
#include <cstdio>
#include <initializer_list>

template <typename Number>
void print(const char* name, int threads, int each, Number number) {
  std::printf("%s", name);
  for (int t = 0; t < threads; ++t) {
    for (int i = 0; i < each; ++i) std::printf(" %d", number(t, i));
  }
  std::puts("");
}

template <int GROUP>
void order(int down, int across) {
  std::printf("order %d %d %d", GROUP, down, across);
  for (int i = 0; i < down * across; ++i) {
    const Place place = snake<GROUP>(i, down, across);
    std::printf(" %d %d", place.row, place.col);
  }
  std::puts("");
}

int main() {
  print("ints", 128, 8, [](int t, int i) {
    return ResultBoxes::int_offset(t, ResultBoxes::int_block(t, i / 2), i % 2);
  });
  print("columns", 128, 1, [](int t, int) { return tf32_column(t); });
  print("tf32", 128, 8, [](int t, int i) { return tf32_address(tf32_offset(t), i); });
  print("dmma_a", 32, 2, [](int t, int i) { return dmma_a_address(dmma_a_offset(t), i); });
  print("dmma_b", 32, 4, [](int t, int i) { return dmma_b_address(dmma_b_offset(t), i); });
  for (int down : {1, 2, 7, 8, 9, 33}) {
    for (int across : {1, 2, 13}) {
      order<2>(down, across);
      order<8>(down, across);
      order<16>(down, across);
    }
  }
}
