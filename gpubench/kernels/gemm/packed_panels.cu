// packed_panels: A is rearranged once, the copy engine brings whole tiles, no multiprocessor idles.
//
// Against `register_banks`: its copies of A go element by element, because A's tile must lie
// transposed, and every block of a row of tiles does this anew. Here a first launch writes A once
// into a workspace, as panels of BM rows, each BK values of k one contiguous tile as shared memory
// wants it. BLAS libraries on CPUs pack so. It costs one pass over A, for N / BN passes saved.
//
// Then the copy engine (TMA, the tensor memory accelerator) moves a whole tile with one instruction
// and no register: A's as one piece of memory, B's as a box of a matrix, described by a map made on
// the host. The threads that multiply execute nothing else. A barrier in shared memory counts the
// bytes that arrive; another barrier, the ordinary one, says that a stage is free. With BK = 64
// there are two stages, and few barriers.
//
// As many blocks as the GPU holds stay for the whole product, and take tile after tile. So the next
// tile's first stages arrive while the last one's results leave. And where the tiles do not come
// out even, the blocks begin with equal shares of some tiles' steps (stream-K; Osama et al., 2023),
// so that all end together: a tile that two blocks share is completed by the one that has its first
// step, with what the other left in the workspace.
//
// The first launch lets the second start early (programmatic dependent launch): it fetches B until
// A is packed. Zeros pad the panels where A ends, and the copy engine puts zeros where B ends, so
// no loop has bounds. A map wants rows at multiples of 16 bytes: where B's are not, the first
// launch copies B too, to rows that are.
//
// TMA and early starts need compute capability 9.0.

#include "../fragments.cuh"
#include "../stream_k.cuh"
#include "../tma.cuh"

// The workspace: a flag a block, then A's panels, B's copy, and what blocks leave for each other.
constexpr int FLAGS = 1024;

// Columns of B as the second launch reads it.
__host__ __device__ constexpr int padded(int N) { return (N + 3) / 4 * 4; }

// One block for each BM×BK tile of A, then one for each row of B if its rows are not aligned.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, int SPLITS = 1>
__global__ void __launch_bounds__(256)
pack(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  __shared__ Scalar tile[BK][BM + 1];
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
    Scalar* const to = packed + static_cast<size_t>(panels) * steps * BM * BK + k * padded(N);
    for (int col = t; col < padded(N); col += 256) to[col] = col < N ? B[k * N + col] : Scalar(0);
    return;
  }
  const int row0 = blockIdx.x / steps * BM;
  const int k0 = blockIdx.x % steps * BK;
#pragma unroll  // all loads at once
  for (int i = t; i < BM * BK; i += 256) {
    const int row = row0 + i / BK;
    const int k = k0 + i % BK;
    tile[i % BK][i / BK] = row < M && k < K ? A[static_cast<size_t>(row) * K + k] : Scalar(0);
  }
  __syncthreads();
  Scalar* const to = packed + static_cast<size_t>(blockIdx.x) * BM * BK;
#pragma unroll 8
  for (int i = t; i < BM * BK; i += 256) to[i] = tile[i / BM][i % BM];
}

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, int SPLITS = 1>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
packed_panels(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K,
              int streamed, const __grid_constant__ CUtensorMap b_map) {
  constexpr int THREADS = BM / TM * (BN / TN);
  constexpr int WARPS_X = BN / (8 * TN);
  constexpr int CHUNK = 4;  // values of k; see register_banks for why it stays a loop
  // The loop turns amid the multiply-adds of one k, with the next one's operands under way. Were it
  // to turn between two values of k, the compiler would load operands right before their use.
  constexpr int HALF = TN / 2;
  constexpr int STAGE = BK * (BM + BN);
  extern __shared__ __align__(128) unsigned char shared[];
  Scalar* const stages = reinterpret_cast<Scalar*>(shared);  // each: BK rows of A, BK rows of B
  __shared__ Mbarrier arrived[STAGES];

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

  // One thread requests both tiles of a step, B's first: it announces the bytes of both.
  const auto request_a = [&](const Cursor& at, int stage) {
    const size_t panel = at.work.origin.row / BM;
    arrived[stage].copy_bulk(stages + stage * STAGE,
                        packed + (panel * steps + at.work.first + at.step) * BM * BK,
                        sizeof(Scalar) * BM * BK);
  };
  const auto request_b = [&](const Cursor& at, int stage) {
    arrived[stage].arrive_expect_bytes(sizeof(Scalar) * STAGE);
    arrived[stage].copy_box(stages + stage * STAGE + BM * BK, &b_map,
                            (at.work.first + at.step) * BK, at.work.origin.col);
  };

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) arrived[stage].init(1);
    fence_mbarrier_init();
  }
  __syncthreads();
  Cursor ahead = {0, 0, scheduler.work(0)};  // the next step to request
  if (threadIdx.x == 0) {
    if (N % 4) wait_for_previous_launch();  // it copies B
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
  int stage = 0;
  unsigned parity = 0;
  Work now = scheduler.work(0);
#pragma unroll 1
  for (int index = 0; now.steps; ++index) {
    arrived[stage].wait(parity);
    fragments[0].load(a, b);
    fragments[0].template multiply_columns<0, HALF>(sum);
#pragma unroll 1
    for (int step = 0; step < now.steps; ++step) {
      if (index + step > 0) {
        __syncthreads();  // all are through with the stage before
        if (threadIdx.x == 0 && ahead.work.steps) {
          const int free = stage == 0 ? STAGES - 1 : stage - 1;
          request_b(ahead, free);
          request_a(ahead, free);
          ahead.advance(scheduler);
        }
      }
#pragma unroll 1
      for (int chunk = 0; chunk < BK / CHUNK - 1; ++chunk) {
#pragma unroll
        for (int k = 0; k < CHUNK; ++k) {
          fragments[(k + 1) % 2].load(a + (k + 1) * BM, b + (k + 1) * BN);
          fragments[k % 2].template multiply_columns<HALF, TN>(sum);
          fragments[(k + 1) % 2].template multiply_columns<0, HALF>(sum);
        }
        a += CHUNK * BM;
        b += CHUNK * BN;
      }
      if (++stage == STAGES) {
        stage = 0;
        parity ^= 1;
      }
#pragma unroll
      for (int k = 0; k < CHUNK - 1; ++k) {
        fragments[(k + 1) % 2].load(a + (k + 1) * BM, b + (k + 1) * BN);
        fragments[k % 2].template multiply_columns<HALF, TN>(sum);
        fragments[(k + 1) % 2].template multiply_columns<0, HALF>(sum);
      }
      a = a_first + stage * STAGE;
      b = b_first + stage * STAGE;
      if (step + 1 < now.steps) {
        arrived[stage].wait(parity);
        fragments[0].load(a, b);
        fragments[1].template multiply_columns<HALF, TN>(sum);
        fragments[0].template multiply_columns<0, HALF>(sum);
      } else {
        fragments[1].template multiply_columns<HALF, TN>(sum);
      }
    }

    // Opaque to the compiler, or the loops above would hold what is derived from them in registers.
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
          asm volatile("" ::: "memory");  // a few loads at a time: the sums take the registers
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
