// splitk: SPLITS blocks share the work along K for one tile of C, and a second launch adds up.
//
// Against `register_banks`: a small C has fewer tiles than the GPU has multiprocessors. 1024×1024
// is 32 tiles of 128×256. With K in four parts there are 128 blocks for 132 multiprocessors.
//
// Each block writes its sums to its own place in a workspace of SPLITS matrices like C. The second
// launch adds these matrices in a fixed order. So the result is the same in every run, unlike with
// atomic additions, and C is written once.
//
// The price is a launch, and writing and reading the workspace, which usually stays in the L2
// cache: SPLITS·M·N elements each way. `splitk_cluster` adds up in one launch, through the shared
// memory of a cluster. But a cluster lies in one part of the GPU. Here blocks may lie anywhere.

#include "../lib/tiles/interleaved_product.cuh"

// Writes C as the sum of SPLITS consecutive matrices, added in their order.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, int SPLITS>
__global__ void __launch_bounds__(256)
add_up(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  const size_t count = static_cast<size_t>(M) * N;
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
       i += stride) {
    Scalar total = workspace[i];
#pragma unroll
    for (int split = 1; split < SPLITS; ++split) total += workspace[split * count + i];
    C[i] = total;
  }
}

// ALIGNED: N is a multiple of 4, as in `interleaved`.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, int SPLITS,
          bool ALIGNED = true>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
splitk(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Origin origin = rasterize<BM, BN>(blockIdx.x / SPLITS, M, N);
  // Parts have whole steps. The last part may be shorter, or empty.
  const int split = blockIdx.x % SPLITS;
  const int part = ((K + SPLITS - 1) / SPLITS + BK - 1) / BK * BK;
  const int from = min(split * part, K);
  const int depth = min(part, K - from);
  Scalar* const to = workspace + split * static_cast<size_t>(M) * N;
  interleaved_tile<Layout::ROWS, ALIGNED, BM, BN, BK, TM, TN, STAGES>(
      A + from, B + static_cast<size_t>(from) * N, to, M, N, K, depth, origin, shared);
}
