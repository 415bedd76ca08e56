// wgmma_scaled: float8 on tensor cores, whose sums leave them after each 128 values of k.
//
// Compared with `scaled_tile`: tensor cores multiply the elements as they are. A scale of A belongs to
// 128 values of k of a row, and a scale of B to 128 values of k of 128 columns. So the product of a
// step of 128 is right but for a factor of each row. It leaves the tensor core, and a thread adds it,
// times this factor, to sums of its own. These are float32, where sums that stay keep 13 bits.
//
// As in `wgmma_parts`, two warpgroups take turns: one multiplies while the other adds. `#`
// multiplies, and `+` adds:
//
//     warpgroup 0   # # # # + + + .         # # # # + + + .
//     warpgroup 1           # # # # + + + .         # # # # + + + .
//
// A warpgroup needs registers for its sums twice, as they leave the tensor core and as they add up.
// So its part of a tile has one or two pieces, which take the same registers by turns: 64×256 are
// 128 sums of a thread and 64 that leave, in 240 registers.
//
// Tiles of 64 or 128 rows are upright: the 64 rows of an instruction are rows of A. A thread has sums
// of two rows, whose scales it loads one step ahead, and a scale of B for each 128 columns. All other
// tiles are transposed (`fitted_tile.cuh`), with any multiple of 8 rows: for fewer than 64 rows. There
// a thread has sums of two of each eight rows, whose scales arrive with the step (`scaled_rows.cuh`).
//
// A warpgroup passes the turn before it has started its last instruction. The other one needs as long
// to start its own, and the tensor cores would wait.
//
// What limits it: power, or the turns; 4096×4096 with K = 7168 takes 1.3 times the clocks of its
// multiplications. Few rows read B from memory. No launch on an H200 takes less than its bytes at
// 4.8 TB/s, or its operations at 1979 TFLOP/s:
//
//     4096×7168, K = 2048     82 MB 17 µs    120 GFLOP 61 µs    896 tiles of 128×256: 3 % idle
//     4096×4096, K = 7168     92 MB 19 µs    241 GFLOP 122 µs   512 tiles of 128×256: 3 % idle
//     64×7168, K = 2048       16 MB 3.3 µs   1.9 GFLOP 0.9 µs   112 tiles of 64×64, or 56

#include "../lib/cluster/fitted_tile.cuh"
#include "../lib/cluster/scaled_rows.cuh"

constexpr int BLOCK = 128;  // values of k, and columns of B, that share a scale

// How a block is divided. A warpgroup that multiplies has PIECES, one beside the other.
template <int BM, int BN>
struct ScaledTile {
  static constexpr bool TRANSPOSED = BM != 64 && BM != 128;
  static constexpr int CONSUMERS = BM != 128 && BN == 64 ? 1 : 2;
  static constexpr bool BY_ROWS = BM == 128;  // whether each warpgroup has rows of its own
  static constexpr int COLUMNS = BY_ROWS ? BN : BN / CONSUMERS;  // of a warpgroup
  static constexpr int PIECES = TRANSPOSED ? COLUMNS / 64 : COLUMNS > 128 ? 2 : 1;
  static constexpr int WIDTH = TRANSPOSED ? BM : COLUMNS / PIECES;  // columns of an instruction
  static constexpr int SUMS = WIDTH / 2;                            // of a thread in a piece
  // Columns with the same scale of B, from a warpgroup's first one on.
  static constexpr int SAME = COLUMNS % BLOCK == 0 ? BLOCK : 64;
  static constexpr int SCALES = COLUMNS / SAME;  // of B
  static constexpr int BOX_BYTES = TRANSPOSED ? BM * ROW_BYTES : 2 * ResultBoxes::BYTES;
  static constexpr int THREADS = 128 * (CONSUMERS + 1);
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 1 ? 40 : 24;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 1 ? 232 : 240;
  static_assert(BN % 64 == 0 && (BY_ROWS || BN != 192), "each 64 columns have one scale");
};

// "It is your turn", to warpgroup 0, or with 1 more to warpgroup 1: a barrier of both, where only
// the receiver waits.
constexpr int TURN = 3;

constexpr int PASSED_AFTER = 1;  // the instruction of a piece, from 0 on, after which a turn ends

// Adds a piece that has left the tensor core, from column FIRST of its warpgroup on. `of_rows` are
// the scales of a thread's two rows, and `of_columns` those of each SAME columns.
template <int FIRST, int SAME, int SUMS>
__device__ __forceinline__ void
add_upright(float* sum, float (&part)[SUMS], const float (&of_rows)[2], const float* of_columns) {
  fence_sums(part);
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const float scale = of_rows[i / 2 % 2] * of_columns[(FIRST + i / 4 * 8) / SAME];
    sum[i] = fmaf(part[i], scale, sum[i]);
  }
}

// The same for transposed sums, from the scales of all rows: a thread has two of each eight rows.
template <int SUMS>
__device__ __forceinline__ void
add_transposed(float* sum, float (&part)[SUMS], const float* of_rows, float of_columns) {
  fence_sums(part);
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const float scale = of_rows[i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] * of_columns;
    sum[i] = fmaf(part[i], scale, sum[i]);
  }
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__((ScaledTile<BM, BN>::THREADS), 1)
wgmma_scaled(const Scalar* A, const Scalar* B, const float* a_scales, const float* b_scales,
             Scalar* C, int M, int N, int K, const __grid_constant__ CUtensorMap a_map,
             const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap c_map,
             const __grid_constant__ CUtensorMap scales_map) {
  using T = ScaledTile<BM, BN>;
  static_assert(BK == BLOCK, "a step has one scale of each row");
  constexpr int BLOCKS = CM * CN;
  constexpr int STAGE_BYTES = (BM + BN) * ROW_BYTES;
  // Threads that free a stage: where a step has scales in shared memory, one of each warp reads them.
  constexpr int FREEING = T::TRANSPOSED ? 32 : 128;
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ Ring<STAGES> ring;
  // Behind the stages: boxes of results of each warpgroup, and the scales of each stage.
  unsigned char* const boxes = stages + STAGES * STAGE_BYTES;
  unsigned char* const scales = boxes + T::CONSUMERS * T::BOX_BYTES;

  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int steps = (K + BK - 1) / BK;
  const int clusters = gridDim.x / BLOCKS;
  start_next_launch();
  const auto fetch = [&] {
    const auto produce_from = [&](auto a) {
      produce<Blocks::STAY, BM, BN, BK, BK, true>(ring, T::CONSUMERS * BLOCKS * 128 / FREEING,
                                                  stages, tiles, 0, steps, a, &b_map);
    };
    if constexpr (T::TRANSPOSED) {
      produce_from(ScaledRows{&a_map, &scales_map, M, ring.filled, scales});
    } else {
      produce_from(&a_map);
    }
  };
  const auto multiply = [&](int warpgroup) {
    wait_for_previous_launch();  // before scales are read
    const unsigned base = shared_address(stages);
    const unsigned box = shared_address(boxes) + warpgroup * T::BOX_BYTES;
    const int first_row = T::BY_ROWS ? warpgroup * 64 : 0;
    const int first_column = T::BY_ROWS ? 0 : warpgroup * T::COLUMNS;
    const int own_row = first_row + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    ResultBoxes results(&c_map, shared_address(boxes), warpgroup);
    bool my_turn = warpgroup == 0;  // the first one is
    Slot<STAGES> slot;
    for (int index = blockIdx.x / BLOCKS; index < tiles.count(); index += clusters) {
      const BlockTile tile = tiles[index];
      const float* scales_of_b[T::SCALES];  // a tile may lie outside of C
#pragma unroll
      for (int i = 0; i < T::SCALES; ++i) {
        const int block = min(tile.col + first_column + i * T::SAME, N - 1) / BLOCK;
        scales_of_b[i] = b_scales + static_cast<size_t>(block) * steps;
      }
      const float* const scales_of_a = a_scales + min(tile.row + own_row, M - 1);
      const int to_second = max(min(8, M - 1 - tile.row - own_row), 0);
      float next[2] = {scales_of_a[0], scales_of_a[to_second]};
      float sum[T::PIECES * T::SUMS];
#pragma unroll
      for (float& one : sum) one = 0;
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        const float of_rows[2] = {next[0], next[1]};
        float of_columns[T::SCALES];
#pragma unroll
        for (int i = 0; i < T::SCALES; ++i) of_columns[i] = scales_of_b[i][step];
        if (!T::TRANSPOSED && step + 1 < steps) {
          const float* const there = scales_of_a + static_cast<size_t>(step + 1) * M;
          next[0] = there[0];
          next[1] = there[to_second];
        }
        const unsigned a = base + slot.stage * STAGE_BYTES + first_row * ROW_BYTES;
        const unsigned b = base + slot.stage * STAGE_BYTES + (BM + first_column) * ROW_BYTES;
        ring.filled[slot.stage].wait(slot.parity);
        float part[T::SUMS];
        const auto multiply_piece = [&](int p) {
          if (T::CONSUMERS > 1 && !my_turn) PTX("bar.sync %0, 256;", "r"(TURN + warpgroup));
          my_turn = false;
          const bool is_last =
              p == T::PIECES - 1 && step == steps - 1 && index + clusters >= tiles.count();
          const unsigned columns = b + p * (T::COLUMNS / T::PIECES) * ROW_BYTES;
          wgmma_fence();
#pragma unroll
          for (int k = 0; k < ROW_BYTES / 32; ++k) {
            multiply_async<Scalar, T::WIDTH>(part, part_of_a(T::TRANSPOSED ? columns : a, k),
                                             part_of_a(T::TRANSPOSED ? a : columns, k), k > 0);
            if (T::CONSUMERS > 1 && k == PASSED_AFTER && !(is_last && warpgroup == 1)) {
              PTX("bar.arrive %0, 256;", "r"(TURN + (warpgroup ^ 1)));
            }
          }
          commit_multiplications();
          await_multiplications<0>();
        };
        if constexpr (T::TRANSPOSED) {
          const float* const of_all_rows =
              reinterpret_cast<const float*>(scales + slot.stage * SCALE_BYTES<BM>) +
              scales_before(step, M);
#pragma unroll
          for (int p = 0; p < T::PIECES; ++p) {
            multiply_piece(p);
            add_transposed(sum + p * T::SUMS, part, of_all_rows, of_columns[p * 64 / T::SAME]);
            fence_sums(sum);
          }
          __syncwarp();
          free_stage<BLOCKS, FREEING>(ring.freed[slot.stage]);
        } else {
          multiply_piece(0);
          if constexpr (T::PIECES > 1) {
            add_upright<0, T::SAME>(sum, part, of_rows, of_columns);
            fence_sums(sum);
            multiply_piece(1);
          }
          free_stage<BLOCKS>(ring.freed[slot.stage]);
          constexpr int LAST = T::PIECES - 1;
          add_upright<LAST * T::WIDTH, T::SAME>(sum + LAST * T::SUMS, part, of_rows, of_columns);
          fence_sums(sum);
        }
        slot.advance();
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
