// packed_panels: blocks stay for the whole product, and all end at the same time.
//
// Against `bulk_copies`: the panels, the copies and the innermost loop are the same. But there a
// block computes one tile of C: it waits for its first stages, and multiplies nothing while it
// stores its sums. And 4096×4096 are 512 tiles of 128×256, 3.88 for each of 132 multiprocessors.
//
// Here the number of blocks is what the GPU holds at once, and each block computes tile after tile
// (persistent blocks). The stages of the next tile arrive while the sums of the last tile are
// stored, and the last multiply-adds of a step load the first operands of the next:
//
//     pack     all blocks  | write the panels of A       |
//     product  thread 0    | request B of stages 0 and 1 | request A of both, then a step
//                          |                             | whenever a stage is free
//              TMA         | [ B, stage 0 ][ B, stage 1 ]| [ A, 0 ][ A, 1 ][ step 2 ][ step 3 ]
//              all threads | set up, wait                |         | step 0 | step 1 | step 2 |
//
//     and at a tile's end:
//
//              TMA         | [ next tile, step 0 ][ next tile, step 1 ]
//              all threads | last step | store sums to C | next tile, step 0 | step 1 | ...
//
// If the tiles do not divide evenly among the blocks, the blocks first compute equal ranges of
// steps of some tiles, so that all end together. `stream_k.cuh` has this scheduler, with a drawing.
// If two blocks share a tile, the block with the tile's first step completes it, with the sums that
// the other block left in the workspace. A flag per block says that these sums are complete. It is
// stored with release semantics and loaded with acquire semantics:
//
//     block with the later steps | its steps | store sums, release the flag | ... whole tiles
//     block with the first step  | other tiles, its steps | acquire the flag, add, store C | ...
//
// The first launch lets the second launch start early (programmatic dependent launch). The second
// sets up its barriers and fetches B while A is packed.

#include "../lib/tma/bulk_product.cuh"
#include "../lib/sums/stream_k.cuh"

// The workspace holds a flag per block, then A's panels, B's copy, and the sums of shared tiles.
constexpr int FLAGS = 1024;

// Launched with a block for each BM×BK tile of A, and one for each row of B if B is copied.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, int SPLITS = 1>
__global__ void __launch_bounds__(256)
pack(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  const int steps = (K + BK - 1) / BK;
  const int panels = (M + BM - 1) / BM;
  const int t = threadIdx.x;
  Scalar* const packed = workspace + FLAGS;
  start_next_launch();
  if (blockIdx.x == 0) {
    for (int i = t; i < FLAGS; i += 256) workspace[i] = 0;
  }
  if (blockIdx.x >= static_cast<unsigned>(panels) * steps) {
    const size_t k = blockIdx.x - static_cast<size_t>(panels) * steps;
    pad_row(B, packed + static_cast<size_t>(panels) * steps * BM * BK, k, N);
    return;
  }
  pack_tile<false, BM, BK>(A, packed, M, K);
}

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, int SPLITS = 1>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
packed_panels(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K,
              int streamed, const __grid_constant__ CUtensorMap b_map) {
  constexpr int THREADS = BM / TM * (BN / TN);
  constexpr int WARPS_X = BN / (8 * TN);
  constexpr int HALF = TN / 2;
  constexpr int STAGE = BK * (BM + BN);
  extern __shared__ __align__(128) unsigned char shared[];
  Scalar* const stages = reinterpret_cast<Scalar*>(shared);  // each: BK rows of A, BK rows of B
  __shared__ Mbarrier filled[STAGES];

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int warp_row = warp / WARPS_X * 4 * TM;
  const int warp_col = warp % WARPS_X * 8 * TN;
  Scalar* const scratch = stages + STAGES * STAGE + warp * (16 * 8 * TN + 4);

  const int steps = (K + BK - 1) / BK;
  const int panels = (M + BM - 1) / BM;
  const StreamK<BM, BN> scheduler = {M, N, streamed, steps};
  unsigned* const flags = reinterpret_cast<unsigned*>(workspace);
  const Scalar* const packed = workspace + FLAGS;

  // One thread requests both tiles of a step. The request of B comes first, and expects all bytes.
  const auto request_a = [&](const Cursor& at, int stage) {
    const size_t panel = at.work.origin.row / BM;
    filled[stage].copy_bulk(stages + stage * STAGE,
                            packed + (panel * steps + at.work.first + at.step) * BM * BK,
                            sizeof(Scalar) * BM * BK);
  };
  const auto request_b = [&](const Cursor& at, int stage) {
    filled[stage].arrive_expect_bytes(sizeof(Scalar) * STAGE);
    filled[stage].copy_box(stages + stage * STAGE + BM * BK, &b_map, (at.work.first + at.step) * BK,
                           at.work.origin.col);
  };

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) filled[stage].init(1);
    fence_mbarrier_init();
  }
  __syncthreads();
  Cursor ahead = {0, 0, scheduler.work(0)};  // the next step to request
  if (threadIdx.x == 0) {
    if (N % 4) wait_for_previous_launch();  // which copies B
    Cursor at = ahead;
    for (int stage = 0; stage < STAGES && at.work.steps; ++stage, at.advance(scheduler)) {
      request_b(at, stage);
    }
    wait_for_previous_launch();
    for (int stage = 0; stage < STAGES && ahead.work.steps; ++stage, ahead.advance(scheduler)) {
      request_a(ahead, stage);
    }
  }

  Scalar sum[TM][TN] = {};
  Fragments<Scalar, TM, TN> fragments[2];
  const Scalar* const a_first = stages + warp_row + lane / 8 * 4;
  const Scalar* const b_first = stages + BK * BM + warp_col + lane % 8 * 4;
  const Scalar* a = a_first;
  const Scalar* b = b_first;
  Slot<STAGES> slot;
  Work now = scheduler.work(0);
#pragma unroll 1
  for (int index = 0; now.steps; ++index) {
    filled[slot.stage].wait(slot.parity);
    fragments[0].load(a, b);
    fragments[0].template multiply_columns<0, HALF>(sum);
#pragma unroll 1
    for (int step = 0; step < now.steps; ++step) {
      if (index + step > 0) {
        __syncthreads();  // all threads have read the previous stage
        if (threadIdx.x == 0 && ahead.work.steps) {
          const int free = slot.stage == 0 ? STAGES - 1 : slot.stage - 1;
          request_b(ahead, free);
          request_a(ahead, free);
          ahead.advance(scheduler);
        }
      }
#pragma unroll 1
      for (int chunk = 0; chunk < BK / CHUNK - 1; ++chunk) {
        add_chunk<CHUNK, BM, BN>(a, b, fragments, sum);
        a += CHUNK * BM;
        b += CHUNK * BN;
      }
      slot.advance();
      add_chunk<CHUNK - 1, BM, BN>(a, b, fragments, sum);
      a = a_first + slot.stage * STAGE;
      b = b_first + slot.stage * STAGE;
      if (step + 1 < now.steps) {
        filled[slot.stage].wait(slot.parity);
        fragments[0].load(a, b);
        fragments[1].template multiply_columns<HALF, TN>(sum);
        fragments[0].template multiply_columns<0, HALF>(sum);
      } else {
        fragments[1].template multiply_columns<HALF, TN>(sum);
      }
    }

    // Hidden from the compiler, so that values derived from them take no registers in the loops.
    int rows = M, cols = N, depth = K;
    asm volatile("" : "+r"(rows), "+r"(cols), "+r"(depth));
    Scalar* const left = workspace + FLAGS + static_cast<size_t>(panels) * steps * BM * BK +
                         (cols % 4 ? depth * static_cast<size_t>(padded(cols)) : 0);
    if (now.first > 0) {
      // Another block has this tile's first step.
      Scalar* const to = left + static_cast<size_t>(scheduler.range()) * BM * BN + threadIdx.x;
#pragma unroll
      for (int i = 0; i < TM * TN; ++i) to[i * THREADS] = sum[i / TN][i % TN];
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) store_release(flags + scheduler.range());
    } else {
      int done = now.steps;
#pragma unroll 1
      for (int other = scheduler.range() + 1; done < steps; ++other) {
        wait_acquire(flags + other);
        const Scalar* const from = left + static_cast<size_t>(other) * BM * BN + threadIdx.x;
#pragma unroll
        for (int i = 0; i < TM; ++i) {
#pragma unroll
          for (int j = 0; j < TN; ++j) sum[i][j] += from[(i * TN + j) * THREADS];
          asm volatile("" ::: "memory");  // limits the loads in flight: the sums take the registers
        }
        done += scheduler.begin(other + 1) - scheduler.begin(other);
      }
      store_tile(sum, scratch, C, now.origin.row + warp_row, now.origin.col + warp_col, rows, cols);
    }
#pragma unroll
    for (int i = 0; i < TM * TN; ++i) sum[i / TN][i % TN] = 0;
    now = scheduler.work(index + 1);
  }
}
