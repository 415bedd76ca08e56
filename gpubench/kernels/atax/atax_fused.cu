// atax_fused: one pass over A: a row gives its element of A·v, and at once its part of the result.
//
// c = Aᵀ·(A·v) is the sum over rows r of b_r·A_r, where b_r = A_r·v. So a block that holds a whole
// row in registers can compute b_r and add b_r·A_r to its sums without reading the row again. A is
// read from memory once, half the traffic of `atax_pair`.
//
// A thread holds VECTORS vectors of 16 bytes of a row, and the sums of c for the same columns. The
// block adds up b_r by shuffles and one barrier per row. To hide that, the next DEPTH rows are
// already in registers or in flight. The number of blocks is what the GPU holds at once. Each block
// takes every gridDim-th row, and at the end writes its sums, a part of c, to the workspace. A
// second launch adds up these parts, at most a few for each multiprocessor.
//
// The limit is a row's length: THREADS·VECTORS vectors. For each row a thread reads its part of v
// from shared memory, since registers would not suffice.

#include "../lib/sums/partial_sums.cuh"
#include "../lib/sums/sums.cuh"
#include "../lib/tiles/vector.cuh"

// A thread's part of a row. ALIGNED: vectors, THREADS apart. Otherwise elements, THREADS apart.
template <typename Scalar, int THREADS, int VECTORS, bool ALIGNED>
struct Piece {
  using Pack = Vector<Scalar>;
  Pack packs[VECTORS];

  __device__ void load(const Scalar* row, int N) {
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      if (ALIGNED) {
        const int at = k * THREADS + threadIdx.x;
        packs[k] = at < N / Pack::SIZE ? load_streaming(reinterpret_cast<const Pack*>(row) + at)
                                       : Pack{};
      } else {
#pragma unroll
        for (int i = 0; i < Pack::SIZE; ++i) {
          const int at = (k * Pack::SIZE + i) * THREADS + threadIdx.x;
          packs[k].lanes[i] = at < N ? row[at] : Scalar(0);
        }
      }
    }
  }

  __device__ void store(Scalar* row, int N) const {
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      if (ALIGNED) {
        const int at = k * THREADS + threadIdx.x;
        if (at < N / Pack::SIZE) reinterpret_cast<Pack*>(row)[at] = packs[k];
      } else {
#pragma unroll
        for (int i = 0; i < Pack::SIZE; ++i) {
          const int at = (k * Pack::SIZE + i) * THREADS + threadIdx.x;
          if (at < N) row[at] = packs[k].lanes[i];
        }
      }
    }
  }
};

template <typename Scalar, int THREADS, int VECTORS, int DEPTH, bool ALIGNED>
__device__ void fused_rows(const Scalar* A, const Scalar* v, Scalar* part, Vector<Scalar>* v_packs,
                           int M, int N) {
  using Held = Piece<Scalar, THREADS, VECTORS, ALIGNED>;
  constexpr int SIZE = Vector<Scalar>::SIZE;
  __shared__ Scalar sums[2][THREADS / 32];

  Held c{};
  Held rows[DEPTH];
  const size_t step = gridDim.x;
#pragma unroll
  for (int ahead = 0; ahead < DEPTH; ++ahead) {
    const size_t row = blockIdx.x + ahead * step;
    if (row < M) rows[ahead].load(A + row * N, N);
  }
  {
    Held own;  // each thread reads what it wrote: no barrier
    own.load(v, N);
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) v_packs[k * THREADS + threadIdx.x] = own.packs[k];
  }
  int turn = 0;
  for (size_t row0 = blockIdx.x; row0 < M; row0 += DEPTH * step) {
#pragma unroll
    for (int ahead = 0; ahead < DEPTH; ++ahead) {
      const size_t row = row0 + ahead * step;
      if (row >= M) break;  // all threads of the block
      Held& held = rows[ahead];
      Scalar b = 0;
#pragma unroll
      for (int k = 0; k < VECTORS; ++k) {
        const Vector<Scalar> pack = v_packs[k * THREADS + threadIdx.x];
#pragma unroll
        for (int i = 0; i < SIZE; ++i) b += held.packs[k].lanes[i] * pack.lanes[i];
      }
      b = block_sum<Scalar, THREADS>(b, sums[turn]);
      turn ^= 1;
#pragma unroll
      for (int k = 0; k < VECTORS; ++k) {
#pragma unroll
        for (int i = 0; i < SIZE; ++i) c.packs[k].lanes[i] += b * held.packs[k].lanes[i];
      }
      const size_t next = row + DEPTH * step;
      if (next < M) held.load(A + next * N, N);
    }
  }
  c.store(part, N);
}

template <typename Scalar, int THREADS, int VECTORS, int DEPTH>
__global__ void __launch_bounds__(THREADS)
atax_fused(const Scalar* A, const Scalar* x, Scalar* y, Scalar* workspace, int M, int N) {
  extern __shared__ double2 memory[];  // 16-byte aligned, and one type for all instances
  Vector<Scalar>* v_packs = reinterpret_cast<Vector<Scalar>*>(memory);
  Scalar* part = gridDim.x == 1 ? y : workspace + static_cast<size_t>(blockIdx.x) * N;
  if (aligned(A, x, N)) {
    fused_rows<Scalar, THREADS, VECTORS, DEPTH, true>(A, x, part, v_packs, M, N);
  } else {
    fused_rows<Scalar, THREADS, VECTORS, DEPTH, false>(A, x, part, v_packs, M, N);
  }
}

template <typename Scalar, int THREADS, int VECTORS, int DEPTH>
__global__ void atax_fused_sum(const Scalar* A, const Scalar* x, Scalar* y, Scalar* workspace,
                               int M, int N, int parts) {
  partial_sums(workspace, y, N, parts);
}
