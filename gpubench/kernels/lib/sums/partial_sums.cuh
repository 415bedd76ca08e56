// partial_sums: adds up blocks' parts of a vector in order. `gemv_t_vectorized` introduces it.
//
// Atomic additions to the result would need no second launch. But they need a result that is set to
// zero, and their order, and so the last digits, would change from run to run.

#pragma once

constexpr int SUM_COLUMNS = 32;  // a warp reads neighbouring elements
constexpr int SUM_GROUPS = 16;   // groups of threads; each adds every SUM_GROUPS-th part
constexpr int SUM_BATCH = 8;     // loads that a thread has in flight

// y[j] = Σ parts[p·N + j] over p < count. Blocks have SUM_COLUMNS × SUM_GROUPS threads.
template <typename Scalar>
__device__ void partial_sums(const Scalar* parts, Scalar* y, int N, int count) {
  __shared__ Scalar sums[SUM_GROUPS][SUM_COLUMNS];
  const int x = threadIdx.x;
  const int group = threadIdx.y;
  const size_t column = static_cast<size_t>(blockIdx.x) * SUM_COLUMNS + x;

  Scalar sum = 0;
  if (column < N) {
    for (int first = group; first < count; first += SUM_BATCH * SUM_GROUPS) {
      // All loads of a batch are in flight together.
      Scalar batch[SUM_BATCH];
#pragma unroll
      for (int step = 0; step < SUM_BATCH; ++step) {
        const int part = first + step * SUM_GROUPS;
        batch[step] = part < count ? parts[static_cast<size_t>(part) * N + column] : Scalar(0);
      }
#pragma unroll
      for (int step = 0; step < SUM_BATCH; ++step) sum += batch[step];
    }
  }
  sums[group][x] = sum;
  __syncthreads();
  for (int half = SUM_GROUPS / 2; half > 0; half /= 2) {
    if (group < half) sums[group][x] += sums[group + half][x];
    __syncthreads();
  }
  if (group == 0 && column < N) y[column] = sums[0][x];
}
