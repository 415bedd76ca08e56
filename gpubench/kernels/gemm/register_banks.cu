// register_banks: the multiplying loop as the register file wants it.
//
// Against `pipelined`: nothing new is loaded or stored; four things change how the same work meets
// the hardware, and each was read off the machine code before it was measured (docs/ladder.md).
//
// 1. 16×8 elements a thread instead of 8×8: six 128-bit loads for 128 multiply-adds. 128 sums and
//    two sets of operands fit 255 registers if a multiprocessor holds one block of 256 threads.
// 2. Operands are loaded one k ahead, into a second set of registers. Unrolled over a whole step,
//    the compiler moves these loads back to where they are needed and waits for each. A loop over
//    TURN values of k that stays a loop has an end that loads do not cross.
// 3. A multiply-add reads three registers from two banks. Sums that leave as 128-bit stores must
//    lie in aligned groups of four registers, which fixes their banks, and half the multiply-adds
//    then collide. Here sums leave one by one, through shared memory, and the compiler is free.
// 4. Copies are requested a share each turn, not all behind the barrier, where they would hold up
//    the loads of all warps at once.
//
// The ragged step of K comes first, with zeros in what it lacks, so the loop has no bounds to
// check along K. Rows past M are not copied and never stored, so they may hold anything.
//
// What remains: the copies of A, element by element because they transpose, pass through the same
// unit as the loads from shared memory. `packed_panels` removes them.

#include "../async_copy.cuh"
#include "../register_product.cuh"

// Adds to `sum` what this thread has of A's rows and B's columns at `place`, along `depth` values of
// k. A's rows are K apart, B's N; ALIGNED says that N is a multiple of 4. All threads of the block
// take part; no copy is under way afterwards.
template <bool ALIGNED, int BM, int BN, int BK, int STAGES, typename Scalar, int TM, int TN>
__device__ __forceinline__ void banked_product(const Scalar* A, const Scalar* B, int M, int N, int K,
                                               int depth, Place place, Scalar* stages,
                                               Scalar (&sum)[TM][TN]) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  constexpr int WARPS_X = BN / (8 * TN);
  constexpr int TURN = 8;  // values of k
  constexpr int TURNS = BK / TURN;
  constexpr int A_ROW = BM + 4;  // a four of padding: transposed writes meet 32 banks
  constexpr int STAGE = BK * (A_ROW + BN);
  // A copy of A by a warp takes 4 rows × 8 k; B goes by fours.
  constexpr int A_ROWS = THREADS / 8;
  constexpr int A_TURN = BM / A_ROWS / TURNS;  // times A_ROWS rows a turn, along all of BK
  constexpr int B_ROWS = THREADS / (BN / 4);
  constexpr int B_TURN = BK / B_ROWS / TURNS;
  static_assert(A_TURN * TURNS * A_ROWS == BM && B_TURN * TURNS * B_ROWS == BK,
                "each turn copies its share");

  const int t = threadIdx.x;
  const int warp = t / 32;
  const int lane = t % 32;
  const int warp_row = warp / WARPS_X * 4 * TM;
  const int warp_col = warp % WARPS_X * 8 * TN;
  const int steps = (depth + BK - 1) / BK;
  const int missing = steps * BK - depth;  // values of k that the first step lacks

  const int a_k = t % 8;
  const int a_row = t / 8;
  const int b_k = t / (BN / 4);
  const int b_col = t % (BN / 4) * 4;
  const bool b_inside = place.col + b_col < N;
  // The next element of A, and of B, that this thread copies: as if the ragged step were whole.
  const Scalar* a_from = A + static_cast<ptrdiff_t>(place.row + a_row) * K + a_k - missing;
  const Scalar* b_from = B + static_cast<ptrdiff_t>(b_k - missing) * N + place.col + b_col;
  const size_t a_pass = static_cast<size_t>(A_ROWS) * K;
  const size_t b_pass = static_cast<size_t>(B_ROWS) * N;

  // Requests the share `turn` of a step's tiles; k below `zeros` are zeros.
  const auto copy = [&](int turn, Scalar* stage, int zeros) {
#pragma unroll
    for (int i = 0; i < A_TURN; ++i) {
      const int row = (turn * A_TURN + i) * A_ROWS + a_row;
      if (place.row + row < M) {
#pragma unroll
        for (int k = 0; k < BK; k += 8) {
          Scalar* const to = stage + (a_k + k) * A_ROW + row;
          if (zeros > 0 && a_k + k < zeros) {
            *to = 0;
          } else {
            copy_async<sizeof(Scalar)>(to, a_from + i * a_pass + k);
          }
        }
      }
    }
    a_from += A_TURN * a_pass;
#pragma unroll
    for (int i = 0; i < B_TURN; ++i) {
      const int k = (turn * B_TURN + i) * B_ROWS + b_k;
      Scalar* const to = stage + BK * A_ROW + k * BN + b_col;
      const Scalar* const from = b_from + i * b_pass;
      if (zeros > 0 && k < zeros) {
        *reinterpret_cast<Four<Scalar>*>(to) = {};
      } else if (ALIGNED) {
        if (b_inside) copy_async<4 * sizeof(Scalar)>(to, from);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (place.col + b_col + e < N) copy_async<sizeof(Scalar)>(to + e, from + e);
        }
      }
    }
    b_from += B_TURN * b_pass;
    if (turn == TURNS - 1) a_from += BK - BM * static_cast<ptrdiff_t>(K);
  };

#pragma unroll 1
  for (int step = 0; step < STAGES - 1; ++step) {
    if (step < steps) {
#pragma unroll 1
      for (int turn = 0; turn < TURNS; ++turn) {
        copy(turn, stages + step * STAGE, step == 0 ? missing : 0);
      }
    }
    commit_copies();  // an empty group keeps the count
  }

  Fragments<Scalar, TM, TN> fragments[2];
  const Scalar* const a_first = stages + warp_row + lane / 8 * 4;
  const Scalar* const b_first = stages + BK * A_ROW + warp_col + lane % 8 * 4;
  const Scalar* a = a_first;
  const Scalar* b = b_first;
  int reading = 0;  // offsets of stages
  int writing = (STAGES - 1) * STAGE;

  await_copies<STAGES - 2>();
  __syncthreads();
  fragments[0].load(a, b);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const bool more = step + STAGES - 1 < steps;
#pragma unroll 1
    for (int turn = 0; turn < TURNS - 1; ++turn) {
      if (more) copy(turn, stages + writing, 0);
#pragma unroll
      for (int k = 0; k < TURN; ++k) {
        fragments[(k + 1) % 2].load(a + (k + 1) * A_ROW, b + (k + 1) * BN);
        fragments[k % 2].multiply_into(sum);
      }
      a += TURN * A_ROW;
      b += TURN * BN;
    }
    if (more) copy(TURNS - 1, stages + writing, 0);
    commit_copies();
#pragma unroll
    for (int k = 0; k < TURN; ++k) {
      if (k < TURN - 1) {
        fragments[(k + 1) % 2].load(a + (k + 1) * A_ROW, b + (k + 1) * BN);
      } else {  // the last turn ends with the next step's first operands
        await_copies<STAGES - 2>();
        __syncthreads();
        writing = reading;
        reading = reading == (STAGES - 1) * STAGE ? 0 : reading + STAGE;
        a = a_first + reading;
        b = b_first + reading;
        fragments[(k + 1) % 2].load(a, b);
      }
      fragments[k % 2].multiply_into(sum);
    }
  }
}

// A block's tile of C from beginning to end.
template <bool ALIGNED, int BM, int BN, int BK, int TM, int TN, int STAGES, typename Scalar>
__device__ __forceinline__ void banked_tile(const Scalar* A, const Scalar* B, Scalar* C, int M,
                                            int N, int K, int depth, Place place) {
  extern __shared__ __align__(16) unsigned char shared[];
  Scalar* const stages = reinterpret_cast<Scalar*>(shared);  // each: BK rows of A, BK rows of B
  Scalar sum[TM][TN] = {};
  banked_product<ALIGNED, BM, BN, BK, STAGES>(A, B, M, N, K, depth, place, stages, sum);

  __syncthreads();  // the stages become scratch
  const int warp = threadIdx.x / 32;
  const int row = place.row + warp / (BN / (8 * TN)) * 4 * TM;
  const int col = place.col + warp % (BN / (8 * TN)) * 8 * TN;
  store_tile(sum, stages + warp * (16 * 8 * TN + 4), C, row, col, M, N);
}

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
register_banks(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const Place place = place_in_bands<BM, BN>(blockIdx.x, M, N);
  banked_tile<true, BM, BN, BK, TM, TN, STAGES>(A, B, C, M, N, K, K, place);
}

// For N that is no multiple of 4. A kernel of its own: a second loop beside the first would take
// registers and the compiler's care from it.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
unaligned(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const Place place = place_in_bands<BM, BN>(blockIdx.x, M, N);
  banked_tile<false, BM, BN, BK, TM, TN, STAGES>(A, B, C, M, N, K, K, place);
}
