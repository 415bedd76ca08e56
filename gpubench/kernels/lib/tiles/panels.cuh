// panels: A rearranged, so that each tile is contiguous in global memory in the order of shared
// memory. `packed_a` introduces it.
//
// A panel is BM rows of A. It is cut into tiles of BM×BK, one for each step, which are transposed
// and contiguous. Tile `step` of panel `panel` starts at (panel · steps + step) · BM · BK, and its
// row k holds the BM elements of one value of k. Elements outside A are zeros.

#pragma once

// Writes tile number blockIdx.x with 256 threads. If BK does not divide K, the first step or the
// last step is the short step, and gets the zeros.
template <bool SHORT_STEP_FIRST, int BM, int BK, typename Scalar>
__device__ __forceinline__ void pack_tile(const Scalar* A, Scalar* panels, int M, int K) {
  __shared__ Scalar tile[BK][BM + 1];
  const int steps = (K + BK - 1) / BK;
  const int t = threadIdx.x;
  const int missing = SHORT_STEP_FIRST ? steps * BK - K : 0;
  const int row0 = blockIdx.x / steps * BM;
  const int k0 = blockIdx.x % steps * BK - missing;
#pragma unroll  // all loads at once
  for (int i = t; i < BM * BK; i += 256) {
    const int row = row0 + i / BK;
    const int k = k0 + i % BK;
    const bool inside = row < M && (SHORT_STEP_FIRST ? k >= 0 : k < K);
    tile[i % BK][i / BK] = inside ? A[static_cast<size_t>(row) * K + k] : Scalar(0);
  }
  __syncthreads();
  Scalar* const to = panels + static_cast<size_t>(blockIdx.x) * BM * BK;
#pragma unroll 8
  for (int i = t; i < BM * BK; i += 256) to[i] = tile[i / BM][i % BM];
}
