// register_tile: a block has 8×8 threads, and each thread computes TILE×TILE elements of C.
//
// Against `naive`: for each k, a thread loads TILE elements of a column of A and TILE elements of a
// row of B, and makes TILE² multiply-adds with them. Each load serves TILE operations instead of
// one, from registers, without shared memory or barriers.
//
// The limit is the register file. The TILE² sums must stay in registers. 64 sums at TILE = 8 fit.
// 256 sums at TILE = 16 do not, since a thread has at most 255 registers: they spill to local
// memory, which lies in global memory, and the time rises. Larger tiles also mean fewer blocks: at
// 512×512, TILE = 16 leaves 16 blocks for a whole GPU.
//
// The column of A is strided by K, and neighbouring threads are TILE rows apart. So the loads of A
// are as uncoalesced as in `naive_uncoalesced`, and the L1 cache makes up for part of it.

constexpr int THREADS = 8;  // along each edge of the block

template <typename Scalar, int TILE>
__global__ void __launch_bounds__(THREADS * THREADS)
register_tile(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row0 = (blockIdx.y * THREADS + threadIdx.y) * TILE;
  const int col0 = (blockIdx.x * THREADS + threadIdx.x) * TILE;
  if (row0 >= M || col0 >= N) return;

  // Past the edge a thread reads the last row or column again. So the inner loop has no branch and
  // no load outside the matrix. The surplus elements are never stored.
  const Scalar* a[TILE];
  int b[TILE];
  Scalar sum[TILE][TILE] = {};
#pragma unroll
  for (int i = 0; i < TILE; ++i) {
    a[i] = A + static_cast<size_t>(min(row0 + i, M - 1)) * K;
    b[i] = min(col0 + i, N - 1);
  }

  for (int k = 0; k < K; ++k) {
    const Scalar* b_row = B + static_cast<size_t>(k) * N;
    Scalar b_values[TILE];
#pragma unroll
    for (int j = 0; j < TILE; ++j) b_values[j] = b_row[b[j]];
#pragma unroll
    for (int i = 0; i < TILE; ++i) {
      const Scalar a_value = a[i][k];
#pragma unroll
      for (int j = 0; j < TILE; ++j) sum[i][j] += a_value * b_values[j];
    }
  }

#pragma unroll
  for (int i = 0; i < TILE; ++i) {
    if (row0 + i >= M) break;
#pragma unroll
    for (int j = 0; j < TILE; ++j) {
      if (col0 + j < N) C[static_cast<size_t>(row0 + i) * N + col0 + j] = sum[i][j];
    }
  }
}
