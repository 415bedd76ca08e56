// splitk: SPLITS blocks share the work along K for one tile of C, and a second launch adds up.
//
// Against `register_banks`: a small C has fewer tiles than the GPU has multiprocessors. 1024×1024
// is 32 tiles of 128×256; with K in four parts it is 128 blocks, on as many multiprocessors.
//
// Each block writes what it has to a place of its own in a workspace of SPLITS matrices like C, and
// the second launch adds these in their order. So the result is the same every time, which atomic
// additions would not give, and C is written once and whole.
//
// The price is the workspace's way out and in, SPLITS·M·N elements each, and a launch. It pays where
// K is large against what the idle multiprocessors would have done; mostly the workspace stays in
// the L2 cache. Clusters of blocks could add up through each other's shared memory in one launch,
// but one block a multiprocessor and four a cluster leave multiprocessors idle wherever their
// groups are not multiples of four.

#include "register_banks.cu"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, int SPLITS>
__global__ void __launch_bounds__(256)
add_up(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  sum_parts<SPLITS>(workspace, C, static_cast<size_t>(M) * N);
}

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, int SPLITS>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
splitk(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  Scalar* const stages = reinterpret_cast<Scalar*>(shared);
  const Place place = place_in_bands<BM, BN>(blockIdx.x / SPLITS, M, N);

  // Parts of whole steps; the last may be shorter, or empty.
  const int split = blockIdx.x % SPLITS;
  const int part = ((K + SPLITS - 1) / SPLITS + BK - 1) / BK * BK;
  const int from = min(split * part, K);
  const int depth = min(part, K - from);

  Scalar sum[TM][TN] = {};
  const Scalar* const a = A + from;
  const Scalar* const b = B + static_cast<size_t>(from) * N;
  if (N % 4 == 0 && reinterpret_cast<size_t>(B) % 16 == 0) {
    banked_product<true, BM, BN, BK, STAGES>(a, b, M, N, K, depth, place, stages, sum);
  } else {
    banked_product<false, BM, BN, BK, STAGES>(a, b, M, N, K, depth, place, stages, sum);
  }

  __syncthreads();  // the stages become scratch
  const int warp = threadIdx.x / 32;
  const int row = place.row + warp / (BN / (8 * TN)) * 4 * TM;
  const int col = place.col + warp % (BN / (8 * TN)) * 8 * TN;
  store_tile(sum, stages + warp * (16 * 8 * TN + 4), workspace + split * static_cast<size_t>(M) * N,
             row, col, M, N);
}
