// wgmma_parts: float32 results from tensor cores, as products of bfloat16 parts.
//
// Compared with `wgmma_pingpong`: that kernel multiplies bfloat16. A float32 number has 24 bits,
// and is the sum of three bfloat16 numbers of 8 bits: a = a0 + a1 + a2. Each part is what the parts
// before it have left, rounded. So a·b is the sum of nine products of parts. Three of them are
// below the last bit, and are left out. Tensor cores multiply bfloat16 15 times as fast as other
// cores multiply float32, so six products take less than half the time of one product in float32.
//
//     split_in_3     thread: eight numbers of A or B, and three times eight parts of them
//     wgmma_parts    a0·b2 + a2·b0 + a1·b1 + a1·b0 + a0·b1 + a0·b0, the smallest products first
//
// With two parts and three products (a1·b0 + a0·b1 + a0·b0) an operand has 16 bits: `split_in_2`.
//
// Where parts are: 64 values of k of a part are a stage of the ring. So tiles are as large as in a
// product of bfloat16, and each part that was fetched is used two or three times per step. A stage
// is free after its last product, and the smallest parts come and go first.
//
// Why sums leave the tensor core: its sums cut off what is below their last bit. So they are always
// too small, and the error grows with K, where roundings up and down would cancel. After each step
// of 64 values of k the sums are therefore added to sums in other registers, with rounding. What
// these additions round off starts the sums of the next step (Kahan's sum), so the result is as
// exact for K = 65536 as for 64. Two parts have fewer bits, and do without this.
//
// Why small K has more sums: float32 then has few roundings, and is hard to match. The sum of a0·b0
// has few bits that are cut off, as long as the five products that are 256 times as small have a
// sum of their own. Up to K = 384, the sum of a0·b0 also leaves after each instruction. That takes
// registers, so tiles are smaller, and a product takes 6 to 30 % longer.
//
// Who multiplies when: two warpgroups have 64 columns of a tile each, and take turns. One
// multiplies a step while the other adds its last sums. `#` multiplies, and `+` adds:
//
//     warpgroup 0   # # # # # # + + .         # # # # # # + + .
//     warpgroup 1               # # # # # # + + .         # # # # # # + + .
//
// Rows have any length, as the parts are in rows of their own. Results leave from registers.
//
// A result that is not finite is computed again in float32 by multiply-adds. So it is right for
// operands that are infinite, NaN, or above 3.39e38, which bfloat16 rounds to infinity. Their parts
// are infinity and NaN, so that no such result is finite. This is slow, and rare.
//
// What limits it: power. The parts of a large matrix are also written to memory and read again.

#include "../lib/cluster/cluster_gemm.cuh"
#include "../lib/mma/bfloat16_parts.cuh"

template <typename, int...>
__global__ void __launch_bounds__(256)
split_in_2(const float* A, const float* B, float* C, float* workspace, int M, int N, int K,
           int blocks_of_a) {
  split_operands<2>(A, B, workspace, M, N, K, blocks_of_a);
}

template <typename, int...>
__global__ void __launch_bounds__(256)
split_in_3(const float* A, const float* B, float* C, float* workspace, int M, int N, int K,
           int blocks_of_a) {
  split_operands<3>(A, B, workspace, M, N, K, blocks_of_a);
}

// How a block is divided: each warpgroup that multiplies has 64 columns.
template <int BM, int BN>
struct PartsTile {
  static constexpr int CONSUMERS = BN / 64;
  static constexpr int SUMS = BM / 2;  // of a thread, in the tensor core and outside of it
  static constexpr int THREADS = 128 * (CONSUMERS + 1);
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 1 ? 40 : 24;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 1 ? 232 : 240;
  static_assert(CONSUMERS <= 2, "registers for one or two");
};

// "It is your turn", to warpgroup 0, or with 1 more to warpgroup 1: a barrier of both, where only
// the receiver waits.
constexpr int TURN = 3;

__device__ __forceinline__ void await_turn(int warpgroup) {
  PTX("bar.sync %0, 256;", "r"(TURN + warpgroup));
}
__device__ __forceinline__ void pass_turn(int warpgroup) {
  PTX("bar.arrive %0, 256;", "r"(TURN + (warpgroup ^ 1)));
}

constexpr int PIECES = ROW_BYTES / 32;  // instructions for a product of a step, 16 values of k each

template <bool FIRST, typename First, typename Second>
__device__ __forceinline__ auto& either(First& first, Second& second) {
  if constexpr (FIRST) {
    return first;
  } else {
    return second;
  }
}

// Starts to multiply a part of A's rows by a part of 64 columns of B, one piece, transposed.
template <int BM>
__device__ __forceinline__ void
multiply_piece(float (&sum)[BM / 2], unsigned a, unsigned b, int k, bool add) {
  multiply_async<__nv_bfloat16, BM, true>(sum, part_of_b<__nv_bfloat16>(b, k), part_of_a(a, k),
                                          add);
}

// Multiplies all pieces of a step.
template <int BM>
__device__ __forceinline__ void
multiply_parts(float (&sum)[BM / 2], unsigned a, unsigned b, bool add = true) {
#pragma unroll
  for (int k = 0; k < PIECES; ++k) multiply_piece<BM>(sum, a, b, k, add || k > 0);
}

// Adds what the tensor core has added up. COMPENSATED: the parts keep what the addition rounds off.
// `nothing` is −0, hidden from the compiler. If `before` were a copy, the compiler would compute
// many sums before it needs their copies, and large tiles lack registers for that.
template <bool COMPENSATED, int SUMS>
__device__ __forceinline__ void
add_parts(float (&sum)[SUMS], float (&part)[SUMS], float nothing) {
  fence_sums(part);
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const float before = sum[i] + nothing;
    sum[i] += part[i];
    if constexpr (COMPENSATED) part[i] -= sum[i] - before;
  }
}

// `add_parts` if products of small parts have their own sum, which keeps what is rounded off.
template <int SUMS>
__device__ __forceinline__ void
add_both(float (&sum)[SUMS], float (&large)[SUMS], float (&small)[SUMS], float nothing) {
  fence_sums(large);
  fence_sums(small);
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const float before = sum[i] + nothing;
    large[i] += small[i];
    sum[i] += large[i];
    small[i] = large[i] - (sum[i] - before);
  }
}

// Stores a thread's sums of transposed products, and repairs results that are not finite.
template <int SUMS>
__device__ __forceinline__ void store_or_repair(const float (&sum)[SUMS], const float* A,
                                                const float* B, float* C, int M, int N, int K,
                                                int row0, int col0) {
  const int lane = threadIdx.x % 32;
  const int first_row = row0 + lane % 4 * 2;
  const int first_col = col0 + threadIdx.x % 128 / 32 * 16 + lane / 4;
  float zero = 0;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int row = first_row + i / 4 * 8 + i % 2, col = first_col + i / 2 % 2 * 8;
    if (row < M && col < N) C[static_cast<size_t>(row) * N + col] = sum[i];
    zero = fmaf(sum[i], 0.0f, zero);
  }
  if (zero != 0) {  // NaN
#pragma unroll 1
    for (int i = 0; i < SUMS; ++i) {
      const int row = first_row + i / 4 * 8 + i % 2, col = first_col + i / 2 % 2 * 8;
      if (row >= M || col >= N) continue;
      float* const to = C + static_cast<size_t>(row) * N + col;
      if (*to - *to == 0) continue;
      float again = 0;
#pragma unroll 1
      for (int k = 0; k < K; ++k) {
        again = fmaf(A[static_cast<size_t>(row) * K + k], B[static_cast<size_t>(k) * N + col],
                     again);
      }
      *to = again;
    }
  }
  __syncwarp();
}

// Sums in the tensor core. TOGETHER: one for all products. APART: one for a0·b0, and one for the
// other products. APART_AND_OFTEN: the sum of a0·b0 also leaves after each instruction.
enum { TOGETHER, APART, APART_AND_OFTEN };

template <typename Scalar, int PARTS, int SUMS, int BM, int BN, int BK, int STAGES, int CM, int CN,
          int GROUP>
__global__ void __launch_bounds__((PartsTile<BM, BN>::THREADS), 1)
wgmma_parts(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
            const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map) {
  using T = PartsTile<BM, BN>;
  constexpr int BLOCKS = CM * CN;
  constexpr bool IN_TURNS = T::CONSUMERS > 1, COMPENSATED = PARTS > 2;
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ Ring<STAGES> ring;

  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int steps = (K + BK - 1) / BK;
  const int clusters = gridDim.x / BLOCKS;
  const auto fetch = [&] {
    produce<Blocks::STAY, BM, BN, BK, BK, false>(ring, T::CONSUMERS * BLOCKS, stages, tiles, 0,
                                                 PARTS * steps, &a_map, &b_map);
  };
  const auto multiply = [&](int warpgroup) {
    const unsigned base = shared_address(stages);
    const unsigned to_columns = (BM + warpgroup * 64) * ROW_BYTES;
    const float nothing = K < 0 ? 1.0f : -0.0f;
    Slot<STAGES> slot;
    bool my_turn = warpgroup == 0;  // the first turn
    const auto next_stage = [&] {   // waits until it is filled
      const int stage = slot.stage;
      ring.filled[stage].wait(slot.parity);
      slot.advance();
      return stage;
    };
    for (int index = blockIdx.x / BLOCKS; index < tiles.count(); index += clusters) {
      float sum[T::SUMS], large[T::SUMS], apart[SUMS == TOGETHER ? 1 : T::SUMS];
      auto& small = either<SUMS == TOGETHER>(large, apart);
#pragma unroll
      for (int i = 0; i < T::SUMS; ++i) sum[i] = 0;
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        const int smallest = next_stage(), largest = next_stage();
        const unsigned of_smallest = base + smallest * (BM + BN) * ROW_BYTES;
        const unsigned of_largest = base + largest * (BM + BN) * ROW_BYTES;
        if (IN_TURNS && !my_turn) await_turn(warpgroup);
        my_turn = false;
        wgmma_fence();
        multiply_parts<BM>(small, of_largest, of_smallest + to_columns, COMPENSATED && step > 0);
        multiply_parts<BM>(small, of_smallest, of_largest + to_columns);
        commit_multiplications();
        int middle = smallest;
        if constexpr (PARTS == 3) {
          middle = next_stage();
          const unsigned of_middle = base + middle * (BM + BN) * ROW_BYTES;
          multiply_parts<BM>(small, of_middle, of_middle + to_columns);
          multiply_parts<BM>(small, of_middle, of_largest + to_columns);
          multiply_parts<BM>(small, of_largest, of_middle + to_columns);
          commit_multiplications();
        }
        if constexpr (SUMS == APART_AND_OFTEN) {
#pragma unroll
          for (int k = 0; k < PIECES - 1; ++k) {
            multiply_piece<BM>(large, of_largest, of_largest + to_columns, k, false);
            commit_multiplications();
            await_multiplications<0>();
            add_both(sum, large, small, nothing);
            wgmma_fence();
          }
          multiply_piece<BM>(large, of_largest, of_largest + to_columns, PIECES - 1, false);
        } else {
          multiply_parts<BM>(large, of_largest, of_largest + to_columns, SUMS == TOGETHER);
        }
        commit_multiplications();
        const bool is_last = step == steps - 1 && index + clusters >= tiles.count();
        if (IN_TURNS && !(is_last && warpgroup == 1)) pass_turn(warpgroup);
        if constexpr (PARTS == 3) {
          await_multiplications<2>();
          free_stage<BLOCKS>(ring.freed[smallest]);
        }
        await_multiplications<1>();
        free_stage<BLOCKS>(ring.freed[middle]);
        await_multiplications<0>();
        free_stage<BLOCKS>(ring.freed[largest]);
        if constexpr (SUMS == TOGETHER) {
          add_parts<COMPENSATED>(sum, large, nothing);
        } else {
          add_both(sum, large, small, nothing);
        }
      }
      const BlockTile tile = tiles[index];
      store_or_repair(sum, A, B, C, M, N, K, tile.row, tile.col + warpgroup * 64);
    }
  };
  divide_roles<T>(fetch, multiply);
}
