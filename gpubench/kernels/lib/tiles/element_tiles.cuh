// element_tiles: copies tiles to shared memory element by element. `blocktile_1d` introduces it.

#pragma once

// Copies the BM×BK tile of A at (row0, k0) and the BK×BN tile of B at (k0, col0), with zeros for
// elements outside the matrices. Neighbouring threads read neighbours of a row.
template <int THREADS, typename Scalar, int BM, int BN, int BK>
__device__ __forceinline__ void load_tiles(const Scalar* A, const Scalar* B, int M, int N, int K,
                                           int row0, int col0, int k0, Scalar (&a_tile)[BM][BK],
                                           Scalar (&b_tile)[BK][BN]) {
  for (int i = threadIdx.x; i < BM * BK; i += THREADS) {
    const int row = row0 + i / BK;
    const int k = k0 + i % BK;
    a_tile[i / BK][i % BK] = row < M && k < K ? A[static_cast<size_t>(row) * K + k] : Scalar(0);
  }
  for (int i = threadIdx.x; i < BK * BN; i += THREADS) {
    const int k = k0 + i / BN;
    const int col = col0 + i % BN;
    b_tile[i / BN][i % BN] = k < K && col < N ? B[static_cast<size_t>(k) * N + col] : Scalar(0);
  }
}
