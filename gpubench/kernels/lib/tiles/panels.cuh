// panels: A in contiguous tiles, in the order of shared memory. `packed_a` introduces them.
//
// A panel is BM rows of A, cut into a tile of BM×BK for each step. Tile `step` of panel `panel`
// starts at (panel · steps + step) · BM · BK. A row has one value of k. Zeros are outside A.

#pragma once

// Writes tile number blockIdx.x with 256 threads. If BK does not divide K, the first step or the
// last step is the short step, and gets the zeros.
template <bool SHORT_STEP_FIRST, int BM, int BK, typename Scalar>
__device__ __forceinline__ void pack_tile(const Scalar* A, Scalar* panels, int M, int K) {
  __shared__ Scalar tile[BK][BM + 1];
  const int steps = (K + BK - 1) / BK;
  const int t = threadIdx.x;
  const int missing = SHORT_STEP_FIRST ? steps * BK - K : 0;
  constexpr int ROWS = 256 / BK;  // that all threads load together
  const int row = blockIdx.x / steps * BM + t / BK;
  const int k = blockIdx.x % steps * BK - missing + t % BK;
  const Scalar* const from = A + static_cast<ptrdiff_t>(row) * K + k;
  const bool k_inside = SHORT_STEP_FIRST ? k >= 0 : k < K;
  Scalar loaded[BM / ROWS];  // all loads at once
#pragma unroll
  for (int i = 0; i < BM; i += ROWS) {
    loaded[i / ROWS] = k_inside && row + i < M ? from[i * static_cast<ptrdiff_t>(K)] : Scalar(0);
  }
#pragma unroll
  for (int i = 0; i < BM; i += ROWS) tile[t % BK][t / BK + i] = loaded[i / ROWS];
  __syncthreads();
  Scalar* const to = panels + static_cast<size_t>(blockIdx.x) * BM * BK;
#pragma unroll 8
  for (int first = 0; first < BM * BK; first += 256) {
    const int i = first + t;
    to[i] = tile[i / BM][i % BM];
  }
}
