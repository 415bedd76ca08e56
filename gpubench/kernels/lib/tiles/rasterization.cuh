// rasterization: the order in which blocks take the tiles of C. `large_tile` introduces it.
//
// Blocks that run at the same time should share rows of A and columns of B in the L2 cache. Along
// whole rows of tiles, 132 blocks of a C with 32 tiles per row would need 5 rows and all 32
// columns. Down groups of 8 rows of tiles, they need 8 rows and 17 columns:
//
//     0  8 16 24 ...
//     1  9 17 25 ...
//     :  :  :  :
//     7 15 23 31 ...

#pragma once

// A tile's first row and column of C.
struct Origin {
  int row, col;
};

template <int BM, int BN>
__device__ __forceinline__ Origin rasterize(int index, int M, int N) {
  constexpr int GROUP = 8;  // rows of tiles
  const int across = (N + BN - 1) / BN;
  const int down = (M + BM - 1) / BM;
  const int first = index / (GROUP * across) * GROUP;
  const int height = min(GROUP, down - first);
  const int within = index % (GROUP * across);
  return {(first + within % height) * BM, within / height * BN};
}
