// packed_panels: A is rearranged once, and the copy engine brings whole tiles.
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
// Zeros pad the panels where A ends, and the copy engine puts zeros where B ends, so no loop has
// bounds. A map wants rows at multiples of 16 bytes: where B's are not, the first launch copies B
// too, to rows that are.
//
// With SPLITS, as in `splitk`, several blocks share K, and a third launch adds up.
//
// TMA needs compute capability 9.0.

#include "../register_product.cuh"

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
  if (blockIdx.x >= static_cast<unsigned>(panels) * steps) {
    const size_t k = blockIdx.x - static_cast<size_t>(panels) * steps;
    Scalar* const to = workspace + static_cast<size_t>(panels) * steps * BM * BK + k * padded(N);
    for (int col = t; col < padded(N); col += 256) to[col] = col < N ? B[k * N + col] : Scalar(0);
    return;
  }
  const int row0 = blockIdx.x / steps * BM;
  const int k0 = blockIdx.x % steps * BK;
#pragma unroll 8
  for (int i = t; i < BM * BK; i += 256) {
    const int row = row0 + i / BK;
    const int k = k0 + i % BK;
    tile[i % BK][i / BK] = row < M && k < K ? A[static_cast<size_t>(row) * K + k] : Scalar(0);
  }
  __syncthreads();
  Scalar* const to = workspace + static_cast<size_t>(blockIdx.x) * BM * BK;
#pragma unroll 8
  for (int i = t; i < BM * BK; i += 256) to[i] = tile[i / BM][i % BM];
}

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, int SPLITS = 1>
__global__ void __launch_bounds__(256)
add_up(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  const size_t panels = (M + BM - 1) / BM;
  const size_t steps = (K + BK - 1) / BK;
  const size_t packed = panels * steps * BM * BK + (N % 4 ? K * static_cast<size_t>(padded(N)) : 0);
  sum_parts<SPLITS>(workspace + packed, C, static_cast<size_t>(M) * N);
}

// A tensor map: what the copy engine must know of B. Opaque, made by the driver.
struct alignas(64) Map {
  unsigned long long words[16];
};

// A barrier in shared memory whose phase ends when all have arrived and all bytes announced are in.
struct Arrival {
  unsigned long long state;

  __device__ __forceinline__ unsigned at() const {
    return static_cast<unsigned>(__cvta_generic_to_shared(this));
  }
  __device__ __forceinline__ void start(int parties) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at()), "r"(parties) : "memory");
  }
  __device__ __forceinline__ void announce(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at()), "r"(bytes)
                 : "memory");
  }
  __device__ __forceinline__ void copy(void* to, const void* from, unsigned bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
        "l"(from), "r"(bytes), "r"(at())
        : "memory");
  }
  // The box of a matrix that begins at (row, col), as the map describes matrix and box.
  __device__ __forceinline__ void copy_box(void* to, const Map* map, int row, int col) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(
            static_cast<unsigned>(__cvta_generic_to_shared(to))),
        "l"(map), "r"(col), "r"(row), "r"(at())
        : "memory");
  }
  __device__ __forceinline__ void await(unsigned parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again%=;\n}" ::"r"(
            at()),
        "r"(parity)
        : "memory");
  }
};

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, int SPLITS = 1>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
packed_panels(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K,
              const __grid_constant__ Map b_map) {
  constexpr int WARPS = BM / TM * (BN / TN) / 32;
  constexpr int WARPS_X = BN / (8 * TN);
  constexpr int TURN = 8;  // values of k; see register_banks for why it stays a loop
  constexpr int STAGE = BK * (BM + BN);
  extern __shared__ __align__(128) unsigned char shared[];
  Scalar* const stages = reinterpret_cast<Scalar*>(shared);  // each: BK rows of A, BK rows of B
  __shared__ Arrival arrived[STAGES];

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int split = blockIdx.x % SPLITS;
  const Place place = place_in_bands<BM, BN>(blockIdx.x / SPLITS, M, N);
  const int warp_row = warp / WARPS_X * 4 * TM;
  const int warp_col = warp % WARPS_X * 8 * TN;

  // This block's steps; the last split may have fewer, or none.
  const int all = (K + BK - 1) / BK;
  const int most = (all + SPLITS - 1) / SPLITS;
  const int first = min(split * most, all);
  const int steps = min(most, all - first);
  const Scalar* const panel = workspace + static_cast<size_t>(place.row / BM) * all * BM * BK;

  // One thread requests both tiles of a step.
  const auto request = [&](int step, int stage) {
    Scalar* const to = stages + stage * STAGE;
    arrived[stage].announce(sizeof(Scalar) * STAGE);
    arrived[stage].copy(to, panel + static_cast<size_t>(first + step) * BM * BK,
                        sizeof(Scalar) * BM * BK);
    arrived[stage].copy_box(to + BM * BK, &b_map, (first + step) * BK, place.col);
  };

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) arrived[stage].start(1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int step = 0; step < STAGES && step < steps; ++step) request(step, step);
  }

  Scalar sum[TM][TN] = {};
  Fragments<Scalar, TM, TN> fragments[2];
  const Scalar* const a_first = stages + warp_row + lane / 8 * 4;
  const Scalar* const b_first = stages + BK * BM + warp_col + lane % 8 * 4;
  const Scalar* a = a_first;
  const Scalar* b = b_first;
  int stage = 0;
  unsigned parity = 0;
  if (steps > 0) arrived[0].await(0);
  fragments[0].load(a, b);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    if (step > 0) {
      __syncthreads();  // all are through with the stage before
      if (threadIdx.x == 0 && step + STAGES - 1 < steps) {
        request(step + STAGES - 1, stage == 0 ? STAGES - 1 : stage - 1);
      }
    }
#pragma unroll 1
    for (int turn = 0; turn < BK / TURN - 1; ++turn) {
#pragma unroll
      for (int k = 0; k < TURN; ++k) {
        fragments[(k + 1) % 2].load(a + (k + 1) * BM, b + (k + 1) * BN);
        fragments[k % 2].multiply_into(sum);
      }
      a += TURN * BM;
      b += TURN * BN;
    }
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
    if (step + 1 < steps) arrived[stage].await(parity);
    const Scalar* const a_next = a_first + stage * STAGE;
    const Scalar* const b_next = b_first + stage * STAGE;
#pragma unroll
    for (int k = 0; k < TURN; ++k) {
      if (k < TURN - 1) {
        fragments[(k + 1) % 2].load(a + (k + 1) * BM, b + (k + 1) * BN);
      } else {
        fragments[(k + 1) % 2].load(a_next, b_next);
      }
      fragments[k % 2].multiply_into(sum);
    }
    a = a_next;
    b = b_next;
  }

  __syncthreads();  // the stages become scratch
  Scalar* to = C;
  if (SPLITS > 1) {
    const size_t b_copy = N % 4 ? K * static_cast<size_t>(padded(N)) : 0;
    const size_t panels = (M + BM - 1) / BM;
    to = workspace + panels * all * BM * BK + b_copy + split * static_cast<size_t>(M) * N;
  }
  store_tile(sum, stages + warp * (16 * 8 * TN + 4), to, place.row + warp_row, place.col + warp_col,
             M, N);
}
