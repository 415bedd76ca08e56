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
// So its part of a tile has pieces of at most 64×128, which take the same registers by turns: 64×256
// are 128 sums of a thread and 64 that leave, in 240 registers.
//
// The scales of a tile's rows arrive with each step (`scaled_rows.cuh`). Tiles of 128 rows give each
// warpgroup 64 rows, so a thread has two rows, and reads two scales per step. All other tiles are
// transposed (`fitted_tile.cuh`): each warpgroup has 64 or 128 columns and all rows, any multiple of
// 8, and a thread reads two scales for each eight rows. The scale of B is one number for a piece.
//
// What limits it: the tensor cores, if an addition takes less time than a multiplication; in a piece
// of 64×128 some 100 of 256 clocks. Few rows read B from memory. No launch on an H200 takes less than
// its bytes at 4.8 TB/s, or its operations at 1979 TFLOP/s:
//
//     4096×7168, K = 2048     82 MB 17 µs    120 GFLOP 61 µs    896 tiles of 128×256: 3 % idle
//     4096×4096, K = 7168     92 MB 19 µs    241 GFLOP 122 µs   512 tiles of 128×256: 3 % idle
//     64×7168, K = 2048       16 MB 3.3 µs   1.9 GFLOP 0.9 µs   112 tiles of 64×64, or 56

#include "../lib/cluster/fitted_tile.cuh"
#include "../lib/cluster/scaled_rows.cuh"

// How a block is divided. A warpgroup that multiplies has PIECES, one beside the other.
template <int BM, int BN>
struct ScaledTile {
  static constexpr bool TRANSPOSED = BM != 128;
  static constexpr int CONSUMERS = TRANSPOSED && BN == 64 ? 1 : 2;
  static constexpr int WIDTH = TRANSPOSED ? BM : BN < 128 ? BN : 128;  // of an instruction
  static constexpr int PIECE = TRANSPOSED ? 64 : WIDTH;                // columns of a piece
  static constexpr int PIECES = TRANSPOSED ? BN / 64 / CONSUMERS : BN / WIDTH;
  static constexpr int SUMS = WIDTH / 2;  // of a thread in a piece
  static constexpr int THREADS = 128 * (CONSUMERS + 1);
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 1 ? 40 : 24;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 1 ? 232 : 240;
  static_assert(BN == 64 || BN == 128 || BN == 256, "a piece has one scale of B");

  // Where a warpgroup's part of a tile begins.
  __device__ __forceinline__ static int row(int warpgroup) { return TRANSPOSED ? 0 : warpgroup * 64; }
  __device__ __forceinline__ static int column(int warpgroup) {
    return TRANSPOSED ? warpgroup * PIECES * 64 : 0;
  }
};

// "It is your turn", to warpgroup 0, or with 1 more to warpgroup 1: a barrier of both, where only
// the receiver waits.
constexpr int TURN = 3;

// Adds what has left the tensor core, times the scales of rows and of the columns. A thread has two
// rows: `first`, and 8 further.
template <int SUMS>
__device__ __forceinline__ void
add_scaled(float (&sum)[SUMS], float (&part)[SUMS], float first, float second) {
  fence_sums(part);
#pragma unroll
  for (int i = 0; i < SUMS; ++i) sum[i] = fmaf(part[i], i % 4 < 2 ? first : second, sum[i]);
  fence_sums(sum);
}

// The same for transposed sums: of each eight rows a thread has two that are neighbours.
template <int SUMS>
__device__ __forceinline__ void
add_scaled(float (&sum)[SUMS], float (&part)[SUMS], const float* of_rows, float of_columns) {
  fence_sums(part);
#pragma unroll
  for (int i = 0; i < SUMS; i += 4) {
    const float2 rows = reinterpret_cast<const float2*>(of_rows)[i + threadIdx.x % 4];
    const float scales[2] = {rows.x * of_columns, rows.y * of_columns};
#pragma unroll
    for (int j = i; j < i + 4; ++j) sum[j] = fmaf(part[j], scales[j % 2], sum[j]);
  }
  fence_sums(sum);
}

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP>
__global__ void __launch_bounds__((ScaledTile<BM, BN>::THREADS), 1)
wgmma_scaled(const Scalar* A, const Scalar* B, const float* a_scales, const float* b_scales,
             Scalar* C, int M, int N, int K, const __grid_constant__ CUtensorMap a_map,
             const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap c_map,
             const __grid_constant__ CUtensorMap scales_map) {
  using T = ScaledTile<BM, BN>;
  static_assert(BK == ROW_BYTES, "a step has one scale of each row");
  constexpr int BLOCKS = CM * CN;
  constexpr int STAGE_BYTES = (BM + BN) * ROW_BYTES;
  constexpr int BOX_BYTES = BM * ROW_BYTES;  // or two boxes of 64 rows
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ Ring<STAGES> ring;
  // Behind the stages: boxes of results of each warpgroup, and the scales of each stage.
  unsigned char* const boxes = stages + STAGES * STAGE_BYTES;
  unsigned char* const scales = boxes + T::CONSUMERS * BOX_BYTES;

  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int steps = (K + BK - 1) / BK;
  const int clusters = gridDim.x / BLOCKS;
  start_next_launch();
  const auto fetch = [&] {  // each warp frees a stage, as each reads scales
    produce<Blocks::STAY, BM, BN, BK, BK, true>(
        ring, 4 * T::CONSUMERS * BLOCKS, stages, tiles, 0, steps,
        ScaledRows{&a_map, &scales_map, M, ring.filled, scales}, &b_map);
  };
  const auto multiply = [&](int warpgroup) {
    wait_for_previous_launch();  // before scales of B are read
    const unsigned base = shared_address(stages);
    const unsigned box = shared_address(boxes) + warpgroup * BOX_BYTES;
    const int first_row = T::row(warpgroup), first_column = T::column(warpgroup);
    const int own_row = first_row + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    ResultBoxes results(&c_map, shared_address(boxes), warpgroup);
    bool my_turn = warpgroup == 0;  // the first one is
    Slot<STAGES> slot;
    for (int index = blockIdx.x / BLOCKS; index < tiles.count(); index += clusters) {
      const BlockTile tile = tiles[index];
      const float* of_columns[T::PIECES];
      float sum[T::PIECES][T::SUMS];
#pragma unroll
      for (int p = 0; p < T::PIECES; ++p) {
        const int column = min(tile.col + first_column + p * T::PIECE, N - 1);  // or outside of C
        of_columns[p] = b_scales + static_cast<size_t>(column / ROW_BYTES) * steps;
#pragma unroll
        for (int i = 0; i < T::SUMS; ++i) sum[p][i] = 0;
      }
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        float of_column[T::PIECES];
#pragma unroll
        for (int p = 0; p < T::PIECES; ++p) of_column[p] = of_columns[p][step];
        const unsigned a = base + slot.stage * STAGE_BYTES;
        const unsigned b = a + BM * ROW_BYTES;
        const float* const of_rows =
            reinterpret_cast<const float*>(scales + slot.stage * SCALE_BYTES<BM>);
        ring.filled[slot.stage].wait(slot.parity);
        float first = 0, second = 0;
        if constexpr (!T::TRANSPOSED) {
          first = of_rows[own_row];
          second = of_rows[own_row + 8];
        }
#pragma unroll
        for (int p = 0; p < T::PIECES; ++p) {
          float part[T::SUMS];
          if (T::CONSUMERS > 1 && !my_turn) PTX("bar.sync %0, 256;", "r"(TURN + warpgroup));
          my_turn = false;
          wgmma_fence();
          const unsigned rows = a + first_row * ROW_BYTES;
          const unsigned columns = b + (first_column + p * T::PIECE) * ROW_BYTES;
#pragma unroll
          for (int k = 0; k < ROW_BYTES / 32; ++k) {
            multiply_async<Scalar, T::WIDTH>(part, part_of_a(T::TRANSPOSED ? columns : rows, k),
                                             part_of_a(T::TRANSPOSED ? rows : columns, k), k > 0);
          }
          commit_multiplications();
          const bool is_last =
              p == T::PIECES - 1 && step == steps - 1 && index + clusters >= tiles.count();
          if (T::CONSUMERS > 1 && !(is_last && warpgroup == 1)) {
            PTX("bar.arrive %0, 256;", "r"(TURN + (warpgroup ^ 1)));
          }
          await_multiplications<0>();
          if constexpr (T::TRANSPOSED) {
            add_scaled(sum[p], part, of_rows, of_column[p]);
          } else {
            add_scaled(sum[p], part, first * of_column[p], second * of_column[p]);
          }
        }
        __syncwarp();
        free_stage<BLOCKS, 32>(ring.freed[slot.stage]);
        slot.advance();
      }
#pragma unroll
      for (int p = 0; p < T::PIECES; ++p) {
        const int column = tile.col + first_column + p * T::PIECE;
        if constexpr (T::TRANSPOSED) {
          await_stored_boxes();  // the TMA has read the box
          synchronize_warpgroup(warpgroup);
          put_box<Output<Scalar>, T::SUMS>(box, sum[p]);
          publish_to_tma();
          synchronize_warpgroup(warpgroup);
          if (threadIdx.x % 128 == 0) store_box<float, T::SUMS>(&c_map, box, tile.row, column);
        } else {
#pragma unroll
          for (int i = 0; i < T::WIDTH / 64; ++i) {
            results.store_sums<Scalar>(sum[p], i, tile.row + first_row, column);
          }
        }
      }
    }
    await_stored_boxes();
  };
  divide_roles<T>(fetch, multiply);
}
