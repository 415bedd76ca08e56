// splitk: SPLITS blocks share the work along K for one tile of C, and add up what they have.
//
// Against `register_banks`: a small C has fewer tiles than the GPU has multiprocessors. 1024×1024
// is 32 tiles of 128×256; with K in four parts it is 128 blocks, on as many multiprocessors.
//
// Adding up: the blocks of one tile form a cluster, so they run at the same time and can read each
// other's shared memory. Each leaves its sums there; then each adds the parts of its share of the
// rows, always in the same order, and stores them. No atomics, no second launch, no workspace, and
// the same result every time.
//
// The price is that tile's way through shared memory, once there and once back from the others:
// BM·BN elements written and read for BM·BN·K / SPLITS multiply-adds. It pays where K is large
// against what the idle multiprocessors would have done.
//
// Clusters need compute capability 9.0.

#include "register_banks.cu"

__device__ __forceinline__ void cluster_barrier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
#endif
}

// An element in the shared memory of block `rank` of the cluster, where ours is at `mine`.
template <typename Scalar>
__device__ __forceinline__ Scalar of_block(const Scalar* mine, int rank) {
  static_assert(sizeof(Scalar) == 4, "loads 32 bits");
  unsigned bits = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(mine));
  asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %1, %2;\n"
               "ld.shared::cluster.u32 %0, [there];\n}"
               : "=r"(bits)
               : "r"(at), "r"(rank)
               : "memory");
#endif
  Scalar value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, int SPLITS>
__global__ void __cluster_dims__(SPLITS) __launch_bounds__((BM / TM) * (BN / TN), 1)
splitk(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  constexpr int WARPS_X = BN / (8 * TN);
  constexpr int ROW = BN + 4;  // of the sums in shared memory
  constexpr int SHARE = BM / SPLITS;
  extern __shared__ __align__(16) unsigned char shared[];
  Scalar* const stages = reinterpret_cast<Scalar*>(shared);
  const Place place = place_in_bands<BM, BN>(blockIdx.x / SPLITS, M, N);

  // Parts of whole steps; the last may be shorter, or empty.
  const int rank = blockIdx.x % SPLITS;
  const int part = ((K + SPLITS - 1) / SPLITS + BK - 1) / BK * BK;
  const int from = min(rank * part, K);
  const int depth = min(part, K - from);

  Scalar sum[TM][TN] = {};
  const Scalar* const b = B + static_cast<size_t>(from) * N;
  if (N % 4 == 0) {
    banked_product<true, BM, BN, BK, STAGES>(A + from, b, M, N, K, depth, place, stages, sum);
  } else {
    banked_product<false, BM, BN, BK, STAGES>(A + from, b, M, N, K, depth, place, stages, sum);
  }

  __syncthreads();  // the stages become the place of the sums
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int y = warp / WARPS_X * 4 * TM + lane / 8 * 4;
  const int x = warp % WARPS_X * 8 * TN + lane % 8 * 4;
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = y + i / 4 * 16 + i % 4;
    // Every fourth row one on: the four rows of a warp's threads meet 32 banks.
    Scalar* const to = stages + row * ROW + row / 4 % 4;
#pragma unroll
    for (int j = 0; j < TN; ++j) to[x + j / 4 * 32 + j % 4] = sum[i][j];
  }
  cluster_barrier();
#pragma unroll 8
  for (int i = threadIdx.x; i < SHARE * BN; i += THREADS) {
    const int row = rank * SHARE + i / BN;
    const int col = i % BN;
    const Scalar* const mine = stages + row * ROW + row / 4 % 4 + col;
    Scalar total = 0;
#pragma unroll
    for (int other = 0; other < SPLITS; ++other) total += of_block(mine, other);
    if (place.row + row < M && place.col + col < N) {
      C[static_cast<size_t>(place.row + row) * N + place.col + col] = total;
    }
  }
  cluster_barrier();  // nobody leaves while others read from it
}
