// packed_a: a first launch rearranges A once, so that no block has to transpose it again.
//
// Against `register_banks`: every block transposes A's tiles on the way to shared memory, element by
// element, and all N / BN blocks of a row of tiles do the same work anew. Here a first launch writes
// A once into a workspace, as panels of BM rows, each BK values of k one contiguous tile as shared
// memory wants it (panels.cuh). BLAS libraries on CPUs pack their operands so.
//
//     A, row-major            workspace: panels of BM rows, tiles of BK values of k
//
//     a00 a01 a02 a03 ...     a00 a10 a20 ... | a01 a11 a21 ... | ...      tile 0 of panel 0
//     a10 a11 a12 a13 ...      BM rows, k = 0 |  BM rows, k = 1 |
//     a20 a21 a22 a23 ...
//
// So a block copies A's tile as it lies, 16 bytes at a time: a quarter of the copies, which no
// longer transpose, so rows in shared memory need no padding either.
//
// The price is one pass over A, which reads and writes M·K elements, and a launch. The product takes
// 2·M·N·K operations, so the larger N is, the less the pass matters.
//
// What remains: threads still execute a copy for every 16 bytes, and compute addresses for it.
// `bulk_copies` has one thread request whole tiles.

#include "../interleaved_product.cuh"
#include "../panels.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__(256)
pack(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  pack_tile<true, BM, BK>(A, workspace, M, K);
}

template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
packed_a(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  interleaved_tile<Layout::PANELS, true, BM, BN, BK, TM, TN, STAGES>(workspace, B, C, M, N, K, K,
                                                                     origin, shared);
}

// For N that is not a multiple of 4.
template <typename Scalar, int BM, int BN, int BK, int TM, int TN, int STAGES>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 1)
unaligned(const Scalar* A, const Scalar* B, Scalar* C, Scalar* workspace, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Origin origin = rasterize<BM, BN>(blockIdx.x, M, N);
  interleaved_tile<Layout::PANELS, false, BM, BN, BK, TM, TN, STAGES>(workspace, B, C, M, N, K, K,
                                                                      origin, shared);
}
