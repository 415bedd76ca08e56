// dmma: float64 on tensor cores: a warp multiplies 16×16 by 16×8 with one instruction.
//
// As in `mma_sync`, operands are in registers. As in `wgmma_cluster`, the TMA fills stages, and
// pairs of blocks share the tiles that they fetch. What is new is the place of each element. Loaded
// in the instruction's numbering, elements come 8 bytes at a time, with bank conflicts. Three
// choices leave only loads of 16 bytes without conflicts. Each load brings two elements that the
// instruction takes from neighbouring registers, so nothing is moved between registers:
//
//   - A and B change places, Cᵀ = Bᵀ·Aᵀ. The operand of 16 rows is 16 columns of B. Its pairs are
//     rows g and g + 8, which become two neighbouring columns.
//   - The order of k is free. Slots t and t + 4 of the instruction become neighbouring values of k.
//     They are the pairs of the other operand, eight rows of A.
//   - The order of the eight rows of A in the instruction is free too. In the order chosen, loads
//     do not meet in a bank of shared memory.
//
// A warp holds all its rows of A for 16 values of k, and passes over its columns of B, which are
// loaded one multiplication ahead. During the last pass each row's registers get the next 16 values
// of k. As in `wgmma_tf32`, all tiles of a block are one stream of steps.
//
// What limits it: power. The multiplications leave few cycles free, so the clock falls until the
// power limit is met, and then the cost of an operation besides its multiplication decides.

#include "../lib/cluster/cluster_tiles.cuh"
#include "../lib/mma/dmma_warp.cuh"

template <typename Scalar, int BM, int BN, int BK, int STAGES, int CM, int CN, int GROUP, int PDL>
__global__ void __launch_bounds__(384, 1)
dmma(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K,
     const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map) {
  using R = Roles<128>;  // two warpgroups multiply
  constexpr int WARPS = 4 * R::CONSUMERS;
  constexpr int WM = BM / 2, WN = BN / 4;  // of a warp: two rows of four
  constexpr int ROWS = WM / 8, COLUMNS = WN / 16;
  constexpr int PASSES = BK / 16 * COLUMNS;  // of a step
  static_assert(PASSES % 2 == 0, "a step begins with the same set of columns");
  constexpr int BLOCKS = CM * CN;
  constexpr int STAGE = (BM + BN) * (BK / DMMA_WIDTH) * ROW_BYTES;
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ Ring<STAGES> ring;

  const ClusterTiles<BM, BN, CM, CN, GROUP> tiles(M, N);
  const int steps = (K + BK - 1) / BK;
  init_cluster(ring, WARPS * BLOCKS);
  if constexpr (PDL) start_next_launch();

  if (warpgroup_index() == R::CONSUMERS) {
    lower_registers<R::PRODUCER_REGISTERS>();
    if (threadIdx.x % 128 != 0) return;
    if constexpr (PDL) wait_for_previous_launch();
    produce<BM, BN, CM, CN, BK, DMMA_WIDTH>(ring, stages, tiles, steps, &a_map, &b_map);
  } else {
    raise_registers<R::CONSUMER_REGISTERS>();
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    const int lane = threadIdx.x % 32;
    const int warp_row = warp / 4 * WM, warp_col = warp % 4 * WN;
    const unsigned a_at = shared_address(stages) + warp_row * ROW_BYTES + dmma_a_offset(lane);
    const unsigned b_at = shared_address(stages) + BM * (BK / DMMA_WIDTH) * ROW_BYTES +
                          warp_col / DMMA_WIDTH * BK * ROW_BYTES + dmma_b_offset(lane);
    double2 a[ROWS][2];
    double2 b[2][4];  // this pass's columns, and the next one's
    const auto load_a = [&](int stage, int k16, int i) {
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        a[i][u] = load_pair(dmma_a_address(a_at + stage * STAGE, u) +
                            (k16 * BM + i * 8) * ROW_BYTES);
      }
    };
    const auto load_b = [&](int set, int stage, int pass) {
      const int part = pass % COLUMNS, k16 = pass / COLUMNS;
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        b[set][u] = load_pair(dmma_b_address(b_at + stage * STAGE, u) +
                              (part * BK + k16 * 16) * ROW_BYTES);
      }
    };

    const int clusters = gridDim.x / BLOCKS;
    int index = blockIdx.x / BLOCKS;
    Slot<STAGES> slot;
    if (index < tiles.count()) {
      ring.filled[0].wait(0);
#pragma unroll
      for (int i = 0; i < ROWS; ++i) load_a(0, 0, i);
      load_b(0, 0, 0);
    }
    for (; index < tiles.count(); index += clusters) {
      const bool last_tile = index + clusters >= tiles.count();
      double sum[COLUMNS][ROWS][4] = {};
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        const int stage = slot.stage;
        slot.advance();
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
          const bool last_pass = pass + 1 == PASSES;
          // After the very last step, the values loaded here are not used.
          if (last_pass && (!last_tile || step + 1 < steps)) {
            ring.filled[slot.stage].wait(slot.parity);
          }
          const int next_stage = last_pass ? slot.stage : stage;
          const int next_pass = last_pass ? 0 : pass + 1;
          load_b((pass + 1) % 2, next_stage, next_pass);
#pragma unroll
          for (int i = 0; i < ROWS; ++i) {
            multiply(sum[pass % COLUMNS][i], b[pass % 2], a[i]);
            if (next_pass % COLUMNS == 0) load_a(next_stage, next_pass / COLUMNS, i);
          }
        }
        __syncwarp();
        free_stage<BLOCKS, 32>(ring.freed[stage]);
      }
      const BlockTile tile = tiles[index];
      const int row0 = tile.row + warp_row + lane % 4, col0 = tile.col + warp_col + lane / 4 * 2;
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = row0 + i * 8 + half * 4;
#pragma unroll
          for (int part = 0; part < COLUMNS; ++part) {
            const int col = col0 + part * 16;
            if (row < M && col < N) {
              *reinterpret_cast<double2*>(C + static_cast<size_t>(row) * N + col) =
                  make_double2(sum[part][i][half], sum[part][i][2 + half]);
            }
          }
        }
      }
    }
  }
}
