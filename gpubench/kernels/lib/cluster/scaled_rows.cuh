// scaled_rows: rows of A that come with scales, one for each row and step. `wgmma_scaled`
// introduces them.
//
// The scales of a step are BM numbers side by side, as the scales of A lie along m. They arrive
// with the step, on the same barrier. The map of the scales has a single row, and a box begins at a
// multiple of 16 bytes. So if M is no multiple of 4, a box has SPARE = 4 more numbers, and up to
// three of them come before the scales. Behind row M lie scales of the next step, which only rows
// outside of C get.

#pragma once

#include "cluster_gemm.cuh"

template <int SPARE>
struct ScaledRows {
  const CUtensorMap* elements;
  const CUtensorMap* scales;
  int rows;                // M
  const Mbarrier* filled;  // the barriers of the ring's stages
  unsigned char* places;   // of the scales of each stage
};

// Bytes of a stage's box of scales, with the TMA's alignment.
template <int NUMBERS>
constexpr int SCALE_BYTES = (NUMBERS * 4 + 127) / 128 * 128;

// Numbers in a step's box before its scales. A tile begins at a multiple of 8 rows.
template <int SPARE>
__device__ __forceinline__ int scales_before(int step, int M) {
  if constexpr (SPARE == 0) return 0;
  return step % 4 * (M % 4) % 4;
}

template <int BM, int SPARE>
__device__ __forceinline__ unsigned bytes_beside(const ScaledRows<SPARE>&) {
  return (BM + SPARE) * 4;
}
template <int BM, int SPARE>
__device__ __forceinline__ void
fetch_beside(Mbarrier& filled, const ScaledRows<SPARE>& a, const BlockTile& tile, int k) {
  const int stage = static_cast<int>(&filled - a.filled);
  const int first = k / ROW_BYTES * a.rows + tile.row;
  filled.copy_box(a.places + stage * SCALE_BYTES<BM + SPARE>, a.scales, 0, first - first % 4);
}

// The functions below do for these rows what the functions of the same names do for a map.
template <int SPARE>
__device__ __forceinline__ void prefetch_map(const ScaledRows<SPARE>& a) {
  prefetch_map(a.elements);
  prefetch_map(a.scales);
}
template <int SPARE>
__device__ __forceinline__ void choose_matrix(const ScaledRows<SPARE>&, const BlockTile&) {}

template <int BLOCKS, int SPARE>
__device__ __forceinline__ void send_box(Mbarrier& filled, void* to, const ScaledRows<SPARE>& a,
                                         int row, int col, unsigned short mask) {
  send_box<BLOCKS>(filled, to, a.elements, row, col, mask);
}
