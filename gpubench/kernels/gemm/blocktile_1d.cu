// blocktile_1d: a block computes a BM×BN tile of C, and each thread TM elements of one column.
//
// Against `shared_tile`: there each multiply-add reads two operands from shared memory, which is
// the bottleneck. Here a thread keeps TM sums in registers. For one k it reads one element of B and
// TM elements of A: TM + 1 reads for TM multiply-adds instead of 2·TM. The block needs only
// BM·BN/TM threads, so its tile may have more than 1024 elements. Each element fetched from global
// memory serves BN multiply-adds (of A) or BM multiply-adds (of B).
//
// Access: the threads of a warp lie side by side along a row of C. They read 32 neighbouring
// elements of B (no bank conflict) and the same element of A (a broadcast). Tiles are loaded
// element by element (`element_tiles.cuh`).
//
// Each multiply-add still reads one element of A from shared memory. `blocktile_2d` shares it, too.

#include "../lib/tiles/element_tiles.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__(BM * BN / TM)
blocktile_1d(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  static_assert(TN == 1, "a thread computes one column");
  constexpr int THREADS = BM * BN / TM;
  __shared__ Scalar a_tile[BM][BK];
  __shared__ Scalar b_tile[BK][BN];

  const int t = threadIdx.x;
  const int row0 = blockIdx.y * BM;
  const int col0 = blockIdx.x * BN;
  const int y = t / BN * TM;  // the thread's first row within the tile, and its column
  const int x = t % BN;

  Scalar sum[TM] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    load_tiles<THREADS>(A, B, M, N, K, row0, col0, k0, a_tile, b_tile);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      const Scalar b = b_tile[k][x];
#pragma unroll
      for (int i = 0; i < TM; ++i) sum[i] += a_tile[y + i][k] * b;
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = row0 + y + i;
    if (row < M && col0 + x < N) C[static_cast<size_t>(row) * N + col0 + x] = sum[i];
  }
}
