// cooperative_groups: the block, tiles of a warp, and sums over a tile.
#pragma once

#include "cuda.h"

namespace cooperative_groups {

struct thread_block {
  static unsigned size() { return num_threads(); }
  static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned thread_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_index() { return blockIdx; }
  static dim3 group_dim() { return blockDim; }
  static void sync(ON_CPU_PLACE) { __syncthreads(file, line); }
};
inline thread_block this_thread_block() { return {}; }

template <unsigned SIZE, typename Parent = void>
struct thread_block_tile {
  static constexpr unsigned size() { return SIZE; }
  static constexpr unsigned num_threads() { return SIZE; }
  static unsigned thread_rank() { return thread_block::thread_rank() % SIZE; }
  static unsigned meta_group_rank() { return thread_block::thread_rank() / SIZE; }
  static unsigned meta_group_size() { return (thread_block::size() + SIZE - 1) / SIZE; }
  static unsigned mask() {
    const unsigned lanes = SIZE == 32 ? ~0u : (1u << SIZE % 32) - 1;
    return lanes << on_cpu::lane() / SIZE * SIZE;
  }
  static void sync(ON_CPU_PLACE) { __syncwarp(mask(), file, line); }
  template <typename T>
  static T shfl(T value, int source, ON_CPU_PLACE) {
    return __shfl_sync(mask(), value, source, SIZE, file, line);
  }
  template <typename T>
  static T shfl_down(T value, unsigned delta, ON_CPU_PLACE) {
    return __shfl_down_sync(mask(), value, delta, SIZE, file, line);
  }
  template <typename T>
  static T shfl_up(T value, unsigned delta, ON_CPU_PLACE) {
    return __shfl_up_sync(mask(), value, delta, SIZE, file, line);
  }
  template <typename T>
  static T shfl_xor(T value, int lane_mask, ON_CPU_PLACE) {
    return __shfl_xor_sync(mask(), value, lane_mask, SIZE, file, line);
  }
};
template <unsigned SIZE, typename Parent>
thread_block_tile<SIZE, Parent> tiled_partition(const Parent&) {
  return {};
}

template <typename Group>
void sync(const Group&, ON_CPU_PLACE) {
  Group::sync(file, line);
}

template <typename T = void>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <unsigned SIZE, typename Parent, typename T, typename Operation>
T reduce(const thread_block_tile<SIZE, Parent>& tile, T value, Operation operation, ON_CPU_PLACE) {
  for (unsigned distance = SIZE / 2; distance > 0; distance /= 2) {
    value = operation(value, tile.shfl_xor(value, static_cast<int>(distance), file, line));
  }
  return value;
}

}  // namespace cooperative_groups
