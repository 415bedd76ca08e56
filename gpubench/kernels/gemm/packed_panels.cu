// packed_panels: A is rearranged once, and the copy engine brings whole tiles.
//
// Against `register_banks`: its copies of A go element by element, because A's tile must lie
// transposed, and every block of a row of tiles does this anew. Here a first launch writes A once
// into a workspace, as panels of BM rows, each BK values of k one contiguous tile as shared memory
// wants it. BLAS libraries on CPUs pack so. It costs one pass over A, for N / BN passes saved.
//
// Then a bulk copy moves kilobytes with one instruction and no register: one for a warp's part of
// A's tile, one for each row of B's. The threads that multiply execute nothing else. A barrier in
// shared memory counts the bytes that arrive; another barrier, the ordinary one, says that a stage
// is free. With BK = 64 there are two stages, and few barriers.
//
// Zeros pad the panels where A ends, so the loop has no bounds. In the ragged step, the first, the
// rows of B that K lacks are zeroed beforehand. Bulk copies want 16-byte alignment: where B's rows
// have none, the first launch copies B too, to rows that have.
//
// Bulk copies need compute capability 9.0.

#include "../register_product.cuh"

// Columns of B as the second launch reads it.
__host__ __device__ constexpr int padded(int N) { return (N + 3) / 4 * 4; }

// One block for each BM×BK tile of A, then one for each row of B if its rows are not aligned.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
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
  const int panel = blockIdx.x / steps;
  const int step = blockIdx.x % steps;
  const int k0 = step * BK - (steps * BK - K);  // the first step lacks some
#pragma unroll 8
  for (int i = t; i < BM * BK; i += 256) {
    const int row = panel * BM + i / BK;
    const int k = k0 + i % BK;
    tile[i % BK][i / BK] = row < M && k >= 0 ? A[static_cast<size_t>(row) * K + k] : Scalar(0);
  }
  __syncthreads();
  Scalar* const to = workspace + static_cast<size_t>(blockIdx.x) * BM * BK;
#pragma unroll 8
  for (int i = t; i < BM * BK; i += 256) to[i] = tile[i / BM][i % BM];
}

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
  __device__ __forceinline__ void await(unsigned parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again%=;\n}" ::"r"(
            at()),
        "r"(parity)
        : "memory");
  }
};

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
packed_panels(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  constexpr int WARPS = BM / TM * (BN / TN) / 32;
  constexpr int WARPS_X = BN / (8 * TN);
  constexpr int TURN = 8;  // values of k; see register_banks for why it stays a loop
  constexpr int STAGE = BK * (BM + BN);
  constexpr int WARP_K = BK / WARPS;  // rows of a stage that a warp's first thread requests
  extern __shared__ __align__(128) unsigned char shared[];
  Scalar* const stages = reinterpret_cast<Scalar*>(shared);  // each: BK rows of A, BK rows of B
  __shared__ Arrival arrived[STAGES];

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const Place place = place_in_bands<BM, BN>(blockIdx.x, M, N);
  const int warp_row = warp / WARPS_X * 4 * TM;
  const int warp_col = warp % WARPS_X * 8 * TN;
  const int steps = (K + BK - 1) / BK;
  const int missing = steps * BK - K;

  const int panels = (M + BM - 1) / BM;
  const size_t b_row = padded(N);
  const Scalar* const b_rows =
      N % 4 == 0 ? B : workspace + static_cast<size_t>(panels) * steps * BM * BK;
  const Scalar* const a_from = workspace + static_cast<size_t>(place.row / BM) * steps * BM * BK +
                               warp * WARP_K * BM;
  const unsigned row_bytes = sizeof(Scalar) * min(BN, padded(N) - place.col);

  // A warp's first thread requests its rows of a step: of A's tile in one piece, of B's each.
  const auto request = [&](int step, int stage) {
    Scalar* const to = stages + stage * STAGE + warp * WARP_K * BM;
    Scalar* const b_to = stages + stage * STAGE + BK * BM + warp * WARP_K * BN;
    const int k = step * BK - missing + warp * WARP_K;
    const int first = max(0, -k);
    const int rows = max(0, WARP_K - first);
    arrived[stage].announce(sizeof(Scalar) * WARP_K * BM + rows * row_bytes);
    arrived[stage].copy(to, a_from + static_cast<size_t>(step) * BM * BK,
                        sizeof(Scalar) * WARP_K * BM);
    const Scalar* b_from = b_rows + static_cast<ptrdiff_t>(k + first) * b_row + place.col;
    for (int i = first; i < WARP_K; ++i, b_from += b_row) {
      arrived[stage].copy(b_to + i * BN, b_from, row_bytes);
    }
  };

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) arrived[stage].start(WARPS);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  for (int i = threadIdx.x; i < missing * BN; i += WARPS * 32) stages[BK * BM + i] = 0;
  // The copy engine will write there later, and must not be overtaken by these zeros.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (lane == 0) {
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
  arrived[0].await(0);
  fragments[0].load(a, b);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    if (step > 0) {
      __syncthreads();  // all are through with the stage before
      if (lane == 0 && step + STAGES - 1 < steps) {
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
  store_tile(sum, stages + warp * (16 * 8 * TN + 4), C, place.row + warp_row, place.col + warp_col,
             M, N);
}
