// scaled_rows: rows of A that come with scales, one for each row and step. `wgmma_scaled` introduces
// them.
//
// The scales of a step are BM numbers side by side, as the scales of A lie along m. They arrive with
// the step, on the same barrier. The map of the scales has a single row, and a box begins at a
// multiple of 16 bytes. So a box has four more numbers, and up to three of them come before the
// scales if M is no multiple of 4. Behind row M lie scales of the next step, for rows outside of C.

#pragma once

#include "cluster_gemm.cuh"

struct ScaledRows {
  const CUtensorMap* elements;
  const CUtensorMap* scales;
  int rows;                // M
  const Mbarrier* filled;  // the barriers of the ring's stages
  unsigned char* places;   // of the scales of each stage
};

constexpr int ALIGNED_SCALES = 4;  // in 16 bytes

// Bytes of the scales of a stage, with the TMA's alignment.
template <int BM>
constexpr int SCALE_BYTES = ((BM + ALIGNED_SCALES) * 4 + 127) / 128 * 128;

// Numbers in a step's box before its scales. A tile begins at a multiple of 8 rows.
__device__ __forceinline__ int scales_before(int step, int M) {
  return step * (M % ALIGNED_SCALES) % ALIGNED_SCALES;
}

template <int BM>
__device__ __forceinline__ unsigned bytes_beside(const ScaledRows&) {
  return (BM + ALIGNED_SCALES) * 4;
}
template <int BM>
__device__ __forceinline__ void
fetch_beside(Mbarrier& filled, const ScaledRows& a, const BlockTile& tile, int k) {
  const int stage = static_cast<int>(&filled - a.filled);
  const int first = k / ROW_BYTES * a.rows + tile.row;
  filled.copy_box(a.places + stage * SCALE_BYTES<BM>, a.scales, 0, first - first % ALIGNED_SCALES);
}

// The functions below do for these rows what the functions of the same names do for a map.
__device__ __forceinline__ void prefetch_map(const ScaledRows& a) {
  prefetch_map(a.elements);
  prefetch_map(a.scales);
}
__device__ __forceinline__ void choose_matrix(const ScaledRows&, const BlockTile&) {}

template <int BLOCKS>
__device__ __forceinline__ void
send_box(Mbarrier& filled, void* to, const ScaledRows& a, int row, int col, unsigned short mask) {
  send_box<BLOCKS>(filled, to, a.elements, row, col, mask);
}
