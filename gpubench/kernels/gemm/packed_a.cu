// packed_a: a first launch rearranges A once, so that no block has to transpose it again.
//
// Against `register_banks`: there every block transposes its tiles of A on the way to shared
// memory, element by element, and all N / BN blocks of a row of tiles repeat this work. Here a
// first launch writes A into a workspace as panels of BM rows. Each BK values of k of a panel are
// one contiguous tile in the order of shared memory (`panels.cuh`).
//
//     A, row-major            workspace: panels of BM rows, tiles of BK values of k
//
//     a00 a01 a02 a03 ...     a00 a10 a20 ... | a01 a11 a21 ... | ...      tile 0 of panel 0
//     a10 a11 a12 a13 ...      BM rows, k = 0 |  BM rows, k = 1 |
//     a20 a21 a22 a23 ...
//
// So a block copies A's tile as contiguous bytes, 16 at a time. That is a quarter of the copies.
// They do not transpose, so rows in shared memory need no padding.
//
// The price is a launch and one pass over A, which reads and writes M·K elements. The product takes
// 2·M·N·K operations, so the pass matters less the larger N is.
//
// What remains: threads still execute a copy for every 16 bytes, and compute addresses for it. In
// `bulk_copies` one thread requests whole tiles.

#include "../lib/tiles/interleaved_product.cuh"
#include "../lib/tiles/panels.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__(256)
pack(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  pack_tile<true, BM, BK>(A, workspace, M, K);
}

// ALIGNED: N is a multiple of 4, as in `interleaved`.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES, bool ALIGNED = true>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
packed_a(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  interleaved_tile<Layout::PANELS, ALIGNED, BM, BN, BK, TM, TN, STAGES>(workspace, B, C, M, N, K, K,
                                                                        origin, shared);
}
