// bulk_copies: the TMA copies whole tiles, and threads only multiply.
//
// Against `packed_a`: there threads execute a copy for every 16 bytes, with an address for each.
// Here one thread of the block requests a whole tile with one instruction, and the TMA (tensor
// memory accelerator) moves it without registers. A's tile is contiguous bytes, since it is packed.
// B's tile is a box of a matrix, described by a tensor map that the driver encodes on the host.
//
// An mbarrier in shared memory says when a stage is filled. The thread that requests the copies
// announces their bytes. The barrier's phase ends when all bytes have arrived, and all threads wait
// for that. __syncthreads() says that all threads have read a stage, so that it is free again.
//
//     thread 0      expect bytes, request A and B --------------------------> again, for stage 0
//     TMA                  [ fills stage 0 ][ fills stage 1 ]        ...  [ fills stage 0 ]
//     all threads   wait ------------------>|multiply stage 0|sync|multiply stage 1|sync| ...
//
// There are no copies to spread over the loop, so steps may be long: BK is 64, with two stages, and
// there is one barrier for 64 values of k.
//
// Bounds: zeros pad the panels where A ends, and the TMA writes zeros where B ends. A tensor map
// takes rows at multiples of 16 bytes. If B has other rows, the first launch copies B, too.
//
// What remains is around the loop. A block waits for its first tiles. The next block on a
// multiprocessor starts only when this block has stored its sums. In the last wave of blocks some
// multiprocessors are idle. `packed_panels` removes these three pauses.

#include "../lib/tma/bulk_product.cuh"
#include "../lib/tiles/rasterization.cuh"

// Launched with a block for each BM×BK tile of A, and one for each row of B if B is copied.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__(256)
pack(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  const unsigned tiles = ((M + BM - 1) / BM) * ((K + BK - 1) / BK);
  if (blockIdx.x < tiles) {
    pack_tile<false, BM, BK>(A, workspace, M, K);
  } else {
    pad_row(B, workspace + static_cast<size_t>(tiles) * BM * BK, blockIdx.x - tiles, N);
  }
}

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
bulk_copies(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K,
            const __grid_constant__ CUtensorMap b_map) {
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
  const int steps = (K + BK - 1) / BK;
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  const Scalar* const panel = workspace + static_cast<size_t>(origin.row / BM) * steps * BM * BK;

  const auto request = [&](int step, int stage) {
    filled[stage].arrive_expect_bytes(sizeof(Scalar) * STAGE);
    filled[stage].copy_bulk(stages + stage * STAGE, panel + static_cast<size_t>(step) * BM * BK,
                            sizeof(Scalar) * BM * BK);
    filled[stage].copy_box(stages + stage * STAGE + BM * BK, &b_map, step * BK, origin.col);
  };

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) filled[stage].init(1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int step = 0; step < STAGES && step < steps; ++step) request(step, step);
  }

  Scalar sum[TM][TN] = {};
  Fragments<Scalar, TM, TN> fragments[2];
  int stage = 0;
  unsigned parity = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const Scalar* a = stages + stage * STAGE + warp_row + lane / 8 * 4;
    const Scalar* b = stages + stage * STAGE + BK * BM + warp_col + lane % 8 * 4;
    filled[stage].wait(parity);
    fragments[0].load(a, b);
    fragments[0].template multiply_columns<0, HALF>(sum);
#pragma unroll 1
    for (int chunk = 0; chunk < BK / CHUNK - 1; ++chunk) {
      add_chunk<CHUNK, BM, BN>(a, b, fragments, sum);
      a += CHUNK * BM;
      b += CHUNK * BN;
    }
    add_chunk<CHUNK - 1, BM, BN>(a, b, fragments, sum);
    fragments[1].template multiply_columns<HALF, TN>(sum);

    __syncthreads();  // all threads have read this stage
    if (threadIdx.x == 0 && step + STAGES < steps) request(step + STAGES, stage);
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
  Scalar* const scratch = stages + warp * (16 * 8 * TN + 4);
  store_tile(sum, scratch, C, origin.row + warp_row, origin.col + warp_col, M, N);
}
