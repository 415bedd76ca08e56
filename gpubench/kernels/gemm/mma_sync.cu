// mma_sync: tensor cores through registers: a warp multiplies 16×16 by 16×8 with one instruction.
//
// Against `pipelined`: the stages of shared memory, filled by `cp.async`, are the same. But a warp,
// not a thread, holds a tile of C. It multiplies with `mma.sync`, 2048 multiply-adds per
// instruction, where a warp's FFMA makes 32. Sums are float32, and are rounded once.
//
// Access: `mma.sync` needs each operand spread over the warp's registers in pairs. `ldmatrix` does
// this: each of 32 lanes names a row of 16 bytes in shared memory, and gets its part of four 8×8
// matrices. `.trans` transposes B, which lies along n, on the way. A swizzle keeps the eight rows
// of a matrix in different banks, without padding (`bits16.cuh`).
//
// A or B may be column-major instead. Its stage then has the rows and columns of the transpose, and
// `ldmatrix` transposes A instead of B: fragments and products stay the same.
//
// Rows that do not start at multiples of 16 bytes are loaded element by element, which is slow.
//
// What limits it: operands pass through registers. A warp's 64×64 sums take 8 fragments of A and B
// for 32 instructions, and on Hopper `mma.sync` reaches about two thirds of the rate of `wgmma`.

#include "../lib/tma/async_copy.cuh"
#include "../lib/mma/bits16.cuh"
#include "../lib/tiles/rasterization.cuh"
#include "../lib/tiles/vector.cuh"

using Bits = unsigned short;  // of an element
constexpr int CHUNK = 8;      // elements of 16 bytes

// Loads four 8×8 matrices. Lane i names row i % 8 of matrix i / 8, and gets two elements of each.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const Bits* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row)));
}
__device__ __forceinline__ void load_transposed_matrices(unsigned (&to)[4], const Bits* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row)));
}

#define MMA(TYPE)                                                                     \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// Adds 16×16 of A times 16×8 of B. With r = lane / 4 and c = 2 (lane % 4), a lane has the columns c
// and c + 1 of row r in sum[0] and sum[1], and of row r + 8 in sum[2] and sum[3].
template <typename Scalar>
__device__ __forceinline__ void
multiply(float (&sum)[4], const unsigned (&a)[4], const unsigned* b) {
  if constexpr (IS_BFLOAT16<Scalar>) {
    MMA("bf16");
  } else {
    MMA("f16");
  }
}

// Offset of chunk `chunk` of a row of WIDTH elements.
template <int WIDTH>
__device__ __forceinline__ int swizzled(int row, int chunk) {
  return row * WIDTH + swizzle(row, chunk) * CHUNK;
}

// Requests ROWS × WIDTH elements at (row0, col0) of a matrix, with zeros outside it.
template <int ROWS, int WIDTH, int THREADS>
__device__ __forceinline__ void request_tile(Bits* tile, const Bits* matrix, int row0, int col0,
                                             int rows, int cols, bool is_aligned) {
  constexpr int CHUNKS = WIDTH / CHUNK;  // in a row
  if (is_aligned) {
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
      const int row = row0 + i / CHUNKS;
      const int col = col0 + i % CHUNKS * CHUNK;
      copy_async<16>(tile + swizzled<WIDTH>(i / CHUNKS, i % CHUNKS),
                     matrix + static_cast<size_t>(row) * cols + col, row < rows && col < cols);
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
      const int row = row0 + i / CHUNKS;
      *reinterpret_cast<Vector<Bits>*>(tile + swizzled<WIDTH>(i / CHUNKS, i % CHUNKS)) =
          load_vector(matrix + static_cast<size_t>(row) * cols, col0 + i % CHUNKS * CHUNK,
                      row < rows ? cols : 0, false);
    }
  }
}

template <typename Scalar, int BM, int BN, int BK, int WM, int WN, int STAGES,
          bool A_BY_COLUMNS = false, bool B_BY_COLUMNS = false>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32)
mma_sync(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  constexpr int THREADS = BM / WM * (BN / WN) * 32;
  constexpr int STAGE = BK * (BM + BN);
  extern __shared__ __align__(128) unsigned char shared[];
  Bits* const stages = reinterpret_cast<Bits*>(shared);  // each: a tile of A, then one of B

  const Bits* const a_global = reinterpret_cast<const Bits*>(A);
  const Bits* const b_global = reinterpret_cast<const Bits*>(B);
  const bool a_aligned = aligned(a_global, a_global, A_BY_COLUMNS ? M : K);
  const bool b_aligned = aligned(b_global, b_global, B_BY_COLUMNS ? K : N);
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_row = warp / (BN / WN) * WM;
  const int warp_col = warp % (BN / WN) * WN;
  const int steps = (K + BK - 1) / BK;

  const auto request_step = [&](int step) {
    Bits* const a = stages + step % STAGES * STAGE;
    Bits* const b = a + BM * BK;
    const int k0 = step * BK;
    if constexpr (A_BY_COLUMNS) {
      request_tile<BK, BM, THREADS>(a, a_global, k0, origin.row, K, M, a_aligned);
    } else {
      request_tile<BM, BK, THREADS>(a, a_global, origin.row, k0, M, K, a_aligned);
    }
    if constexpr (B_BY_COLUMNS) {
      request_tile<BN, BK, THREADS>(b, b_global, origin.col, k0, N, K, b_aligned);
    } else {
      request_tile<BK, BN, THREADS>(b, b_global, k0, origin.col, K, N, b_aligned);
    }
  };

#pragma unroll
  for (int step = 0; step < STAGES - 1; ++step) {
    if (step < steps) request_step(step);
    commit_copies();  // an empty group keeps the count
  }
  float sum[WM / 16][WN / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    await_copies<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < steps) request_step(step + STAGES - 1);
    commit_copies();
    const Bits* const a_tile = stages + step % STAGES * STAGE;
    const Bits* const b_tile = a_tile + BM * BK;
#pragma unroll
    for (int k = 0; k < BK; k += 16) {
      unsigned a[WM / 16][4];
      unsigned b[WN / 16][4];
#pragma unroll
      for (int i = 0; i < WM / 16; ++i) {
        if constexpr (A_BY_COLUMNS) {
          load_transposed_matrices(
              a[i], a_tile + swizzled<BM>(k + lane / 16 * 8 + lane % 8,
                                          (warp_row + i * 16) / CHUNK + lane / 8 % 2));
        } else {
          load_matrices(a[i], a_tile + swizzled<BK>(warp_row + i * 16 + lane % 16,
                                                    k / CHUNK + lane / 16));
        }
      }
#pragma unroll
      for (int j = 0; j < WN / 16; ++j) {
        if constexpr (B_BY_COLUMNS) {
          load_matrices(b[j], b_tile + swizzled<BK>(warp_col + j * 16 + lane / 16 * 8 + lane % 8,
                                                    k / CHUNK + lane / 8 % 2));
        } else {
          load_transposed_matrices(
              b[j], b_tile + swizzled<BN>(k + lane % 16, warp_col / CHUNK + 2 * j + lane / 16));
        }
      }
#pragma unroll
      for (int i = 0; i < WM / 16; ++i) {
#pragma unroll
        for (int j = 0; j < WN / 8; ++j) multiply<Scalar>(sum[i][j], a[i], b[j / 2] + j % 2 * 2);
      }
    }
  }

  Bits* const c = reinterpret_cast<Bits*>(C);
#pragma unroll
  for (int i = 0; i < WM / 16; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = origin.row + warp_row + i * 16 + half * 8 + lane / 4;
      if (row >= M) continue;
#pragma unroll
      for (int j = 0; j < WN / 8; ++j) {
        const int col = origin.col + warp_col + j * 8 + lane % 4 * 2;
        const unsigned pair = pack<Scalar>(sum[i][j][2 * half], sum[i][j][2 * half + 1]);
        Bits* const to = c + static_cast<size_t>(row) * N + col;
        if (N % 2 == 0 && col < N) {
          *reinterpret_cast<unsigned*>(to) = pair;
        } else {
          if (col < N) to[0] = static_cast<Bits>(pair);
          if (col + 1 < N) to[1] = static_cast<Bits>(pair >> 16);
        }
      }
    }
  }
}
