// wgmma_scaled: float8 on tensor cores, whose sums leave them after each 128 values of k.
//
// Compared with `scaled_tile`: tensor cores multiply the elements as they are. A scale of A belongs
// to 128 values of k of a row, and a scale of B to 128 values of k of 128 columns. So the product
// of a step of 128 only lacks a factor for each row. It leaves the tensor core, and a thread adds
// it, times this factor, to sums of its own. These are float32: sums that stay have 14 bits.
//
// A warpgroup's part of a tile is one piece, the sums of an instruction, or two. One piece of a
// step is multiplied while that of the last step is added. `#` multiplies, and `+` adds:
//
//     one step       # # # # + + +   # # # # + + +
//     the next one           # # # # + + +   # # # # + + +
//
// So a thread has registers for its sums, and for two pieces on their way: 64×128 are 64 of each.
// Two pieces of a step, of 64×256, have no room for that. They take the same registers, and the
// other warpgroup multiplies meanwhile. They fetch fewer bytes for each operation, and take longer.
//
// Tiles of 64 or 128 rows are upright: the 64 rows of an instruction are rows of A, and a thread
// has two scales of them. All other tiles are transposed (`fitted_tile.cuh`), with any multiple of
// 8 rows, for products of fewer than 64 rows. There a thread has two scales of each eight rows. The
// scales of a tile's rows arrive with each step (`scaled_rows.cuh`): a thread that loads them from
// the L2 cache itself, a step ahead, waits for them, as the copies of A and B are in front of it
// (1.3 times the time at 4096×4096 with K = 7168 on an H200). The scale of B is one number for each
// 128 columns.
//
// What limits it: power, where there are many rows: the clock falls to 1573 MHz there. Few rows
// read B from memory. No launch on an H200 takes less than its bytes at 4.8 TB/s, or its operations
// at 1979 TFLOP/s:
//
//     4096×7168, K = 2048     82 MB 17 µs    120 GFLOP 61 µs    1792 tiles of 128×128: 3 % idle
//     4096×4096, K = 7168     92 MB 19 µs    241 GFLOP 122 µs   1024 tiles of 128×128: 3 % idle
//     64×7168, K = 2048       16 MB 3.3 µs   1.9 GFLOP 0.9 µs   112 tiles of 64×64: 15 % idle

#include "../lib/cluster/fitted_tile.cuh"
#include "../lib/cluster/scaled_rows.cuh"

constexpr int BLOCK = 128;  // values of k, and columns of B, that share a scale

// How a block is divided. A warpgroup that multiplies has PIECES, one beside the other.
template <int BM, int BN>
struct ScaledTile {
  static constexpr bool TRANSPOSED = BM != 64 && BM != 128;
  static constexpr bool BY_ROWS = BM == 128;  // whether each warpgroup has rows of its own
  static constexpr int CONSUMERS = BY_ROWS || BN > 64 ? 2 : 1;
  static constexpr int COLUMNS = BY_ROWS ? BN : BN / CONSUMERS;  // of a warpgroup
  static constexpr int PIECES = TRANSPOSED ? COLUMNS / 64 : COLUMNS > 128 ? 2 : 1;
  static constexpr int WIDTH = TRANSPOSED ? BM : COLUMNS / PIECES;  // columns of an instruction
  static constexpr int SUMS = WIDTH / 2;                            // of a thread in a piece
  static constexpr int TO_NEXT = COLUMNS / PIECES * ROW_BYTES;      // piece, in bytes of B
  static constexpr int UNDER_WAY = PIECES == 1 ? 2 : 1;             // pieces
  // Columns with the same scale of B, from a warpgroup's first one on.
  static constexpr int SAME = COLUMNS % BLOCK == 0 ? BLOCK : 64;
  static constexpr int SCALES = COLUMNS / SAME;  // of B
  static constexpr int BOX_BYTES = TRANSPOSED ? BM * ROW_BYTES : 2 * ResultBoxes::BYTES;
  static constexpr int THREADS = 128 * (CONSUMERS + 1);
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 1 ? 40 : 24;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 1 ? 232 : 240;
  static_assert(BN % 64 == 0 && (BY_ROWS || BN != 192), "each 64 columns have one scale");
};

// A step that has arrived: the addresses of its rows of A and columns of B, and its scales.
template <typename T>
struct Arrived {
  int stage;
  unsigned a, b;
  const float* of_rows;
  float of_columns[T::SCALES];
};

// Starts a piece: rows of A and columns of B, which begin at these addresses.
template <typename Scalar, typename T>
__device__ __forceinline__ void start_piece(float (&part)[T::SUMS], unsigned a, unsigned b) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < ROW_BYTES / 32; ++k) {
    multiply_async<Scalar, T::WIDTH>(part, part_of_a(T::TRANSPOSED ? b : a, k),
                                     part_of_a(T::TRANSPOSED ? a : b, k), k > 0);
  }
  commit_multiplications();
}

// Adds piece P, which has left the tensor core. `of_rows` are the scales of the tile's rows, from
// this thread's first one on, and `of_columns` those of each SAME columns.
template <typename T, int P>
__device__ __forceinline__ void add_piece(float (&sum)[T::PIECES * T::SUMS], float (&part)[T::SUMS],
                                          const float* of_rows,
                                          const float (&of_columns)[T::SCALES]) {
  fence_sums(part);
  const float upright[2] = {of_rows[0], of_rows[8]};
#pragma unroll
  for (int i = 0; i < T::SUMS; ++i) {
    const float of_row = T::TRANSPOSED ? of_rows[i / 4 * 8 + i % 2] : upright[i / 2 % 2];
    const int column = T::TRANSPOSED ? P * 64 : P * T::WIDTH + i / 4 * 8;
    float& to = sum[P * T::SUMS + i];
    to = fmaf(part[i], of_row * of_columns[column / T::SAME], to);
    asm volatile("" : "+f"(to)::"memory");  // before the next piece starts
  }
}

// SPARE: numbers that a box of scales has beside those of its rows, 4 unless M is a multiple of 4.
template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP, int SPARE>
__global__ void __launch_bounds__((ScaledTile<BM, BN>::THREADS), 1)
wgmma_scaled(const Scalar* A, const Scalar* B, const float* a_scales, const float* b_scales,
             Scalar* C, int M, int N, int K, const __grid_constant__ CUtensorMap a_map,
             const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap c_map,
             const __grid_constant__ CUtensorMap scales_map) {
  using T = ScaledTile<BM, BN>;
  static_assert(BK == BLOCK, "a step has one scale of each row");
  constexpr int BLOCKS = CM * CN;
  constexpr int STAGE_BYTES = (BM + BN) * ROW_BYTES;
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ Ring<STAGES> ring;
  // Behind the stages: boxes of results of each warpgroup, and the scales of each stage.
  unsigned char* const boxes = stages + STAGES * STAGE_BYTES;
  unsigned char* const scales = boxes + T::CONSUMERS * T::BOX_BYTES;

  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int steps = (K + BK - 1) / BK;
  const int clusters = gridDim.x / BLOCKS;
  start_next_launch();
  const auto fetch = [&] {  // each warp frees a stage, as each reads scales
    produce<Blocks::STAY, BM, BN, BK, BK, true>(
        ring, 4 * T::CONSUMERS * BLOCKS, stages, tiles, 0, steps,
        ScaledRows<SPARE>{&a_map, &scales_map, M, ring.filled, scales}, &b_map);
  };
  const auto multiply = [&](int warpgroup) {
    wait_for_previous_launch();  // before scales of B are read
    const unsigned base = shared_address(stages);
    const unsigned box = shared_address(boxes) + warpgroup * T::BOX_BYTES;
    const int first_row = T::BY_ROWS ? warpgroup * 64 : 0;
    const int first_column = T::BY_ROWS ? 0 : warpgroup * T::COLUMNS;
    // This thread's first row of the tile.
    const int own_row = T::TRANSPOSED
                            ? threadIdx.x % 4 * 2
                            : first_row + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    ResultBoxes results(&c_map, shared_address(boxes), warpgroup);
    Slot<STAGES> slot;
    for (int index = blockIdx.x / BLOCKS; index < tiles.count(); index += clusters) {
      const BlockTile tile = tiles[index];
      const float* scales_of_b[T::SCALES];  // a tile may lie outside of C
#pragma unroll
      for (int i = 0; i < T::SCALES; ++i) {
        const int block = min(tile.col + first_column + i * T::SAME, N - 1) / BLOCK;
        scales_of_b[i] = b_scales + static_cast<size_t>(block) * steps;
      }
      float sum[T::PIECES * T::SUMS], part[T::UNDER_WAY][T::SUMS];
#pragma unroll
      for (int i = 0; i < T::PIECES * T::SUMS; ++i) sum[i] = 0;
      Arrived<T> now = {}, last = {};  // pieces of two steps may be under way

      // Waits for the next step, and puts its scales and operands into `now`.
      const auto begin = [&](int step) {
        last = now;
        now.stage = slot.stage;
        now.of_rows =
            reinterpret_cast<const float*>(scales + slot.stage * SCALE_BYTES<BM + SPARE>) +
            scales_before<SPARE>(step, M) + own_row;
#pragma unroll
        for (int i = 0; i < T::SCALES; ++i) now.of_columns[i] = scales_of_b[i][step];
        now.a = base + slot.stage * STAGE_BYTES + first_row * ROW_BYTES;
        now.b = base + slot.stage * STAGE_BYTES + (BM + first_column) * ROW_BYTES;
        ring.filled[slot.stage].wait(slot.parity);
        slot.advance();
      };
      const auto end = [&](const Arrived<T>& step) {
        __syncwarp();
        free_stage<BLOCKS, 32>(ring.freed[step.stage]);
      };
      if constexpr (T::PIECES == 2) {
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
          begin(step);
          start_piece<Scalar, T>(part[0], now.a, now.b);
          await_multiplications<0>();
          add_piece<T, 0>(sum, part[0], now.of_rows, now.of_columns);
          start_piece<Scalar, T>(part[0], now.a, now.b + T::TO_NEXT);
          await_multiplications<0>();
          add_piece<T, 1>(sum, part[0], now.of_rows, now.of_columns);
          end(now);
        }
      } else {
        begin(0);
        start_piece<Scalar, T>(part[0], now.a, now.b);
#pragma unroll 1
        for (int step = 1;; step += 2) {
          if (step == steps) {
            await_multiplications<0>();
            add_piece<T, 0>(sum, part[0], now.of_rows, now.of_columns);
            break;
          }
          begin(step);
          start_piece<Scalar, T>(part[1], now.a, now.b);
          await_multiplications<1>();
          add_piece<T, 0>(sum, part[0], last.of_rows, last.of_columns);
          end(last);
          if (step + 1 == steps) {
            await_multiplications<0>();
            add_piece<T, 0>(sum, part[1], now.of_rows, now.of_columns);
            break;
          }
          begin(step + 1);
          start_piece<Scalar, T>(part[0], now.a, now.b);
          await_multiplications<1>();
          add_piece<T, 0>(sum, part[1], last.of_rows, last.of_columns);
          end(last);
        }
        end(now);
      }
      const int column = tile.col + first_column;
#pragma unroll
      for (int i = 0; i < T::COLUMNS / 64; ++i) {
        if constexpr (T::TRANSPOSED) {
          await_stored_boxes();  // the TMA has read the box
          synchronize_warpgroup(warpgroup);
          put_box<Output<Scalar>, T::SUMS>(box, sum + i * T::SUMS);
          publish_to_tma();
          synchronize_warpgroup(warpgroup);
          leave_box<float, T::SUMS>(&c_map, box, tile.row, column + i * 64);
        } else {
          results.store_sums<Scalar>(sum, i, tile.row + first_row, column);
        }
      }
    }
    await_stored_boxes();
  };
  divide_roles<T>(fetch, multiply);
}
