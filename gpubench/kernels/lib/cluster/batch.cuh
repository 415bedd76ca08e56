// batch: loads and stores the matrices of a batch. `wgmma_batched` introduces it.
//
// A tensor map of three dimensions describes all matrices, which are contiguous. A box lies in one
// matrix, and ends at its edges.

#pragma once

#include "cluster_gemm.cuh"

// A matrix of a batch: the map of all matrices, and the number of this matrix.
struct MatrixOfBatch {
  const CUtensorMap* map;
  int number = 0;
};

// The tiles of all products of a batch: `Tiles` of the first product, then of the second, ...
template <typename Tiles>
struct BatchTiles : Tiles {
  int batch;

  __device__ __forceinline__ BatchTiles(int batch, int M, int N) : Tiles(M, N), batch(batch) {}
  __device__ __forceinline__ int count() const { return batch * Tiles::count(); }
  __device__ __forceinline__ BlockTile operator[](int index) const {
    BlockTile tile = Tiles::operator[](index % Tiles::count());
    tile.product = index / Tiles::count();
    return tile;
  }
};

__device__ __forceinline__ void choose_matrix(MatrixOfBatch& matrix, const BlockTile& tile) {
  matrix.number = tile.product;
}

// The functions below do for a matrix of a batch what the functions of the same names do for a map.
__device__ __forceinline__ void prefetch_map(const MatrixOfBatch& matrix) {
  prefetch_map(matrix.map);
}

// Prefetches the maps while the block computes the place of its first tile.
__device__ __forceinline__ void
prefetch_maps(const CUtensorMap& a_map, const CUtensorMap& b_map, const CUtensorMap& c_map) {
  if (threadIdx.x > 0) return;
  prefetch_map(&a_map);
  prefetch_map(&b_map);
  prefetch_map(&c_map);
}

// Ignores a policy of the L2 cache: with EVICT_FIRST, products took up to 1.6 times as long.
template <int BLOCKS>
__device__ __forceinline__ void
send_box(Mbarrier& filled, void* to, const MatrixOfBatch& matrix, int row, int col,
         unsigned short mask, unsigned long long = EVICT_NORMAL) {
  const CUtensorMap* const map = matrix.map;
  if constexpr (BLOCKS == 1) {
    PTX("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %5}], [%4];",
        "r"(shared_address(to)), "l"(map), "r"(col), "r"(row), "r"(shared_address(&filled)),
        "r"(matrix.number));
  } else {
    SEND_BOX("3d", "%2, %3, %5", ".multicast::cluster", "%6", "r"(matrix.number), "h"(mask));
  }
}

__device__ __forceinline__ void store_by_tma(const MatrixOfBatch& matrix, unsigned box, int row,
                                             int col) {
  PTX("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group.L2::cache_hint"
      " [%0, {%1, %2, %5}], [%3], %4;",
      "l"(matrix.map), "r"(col), "r"(row), "r"(box), "l"(EVICT_FIRST), "r"(matrix.number));
}
