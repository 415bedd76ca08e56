// vectorized: each instruction moves 128 bits, from global memory, to shared memory and back.
//
// Against `blocktile_2d`: a thread moves 16 bytes at a time (four float32, two float64). That needs
// neighbours in memory, but a thread's elements of a column of A were BK apart. So A's tile is
// stored transposed: a row of A is read as one vector along k and written as single elements, each
// to another row of k. The inner loop then reads columns of A as vectors, like rows of B.
//
// Padding: the transposed writes of a warp go to the same column of many rows. If BM is a multiple
// of 32, all these rows begin in bank 0. One more vector per row shifts each row by four banks.
//
// At 8×8 and float32, one k costs four loads from shared memory for 64 multiply-adds. What remains:
// threads are TN columns apart. A vector load serves a quarter of a warp at a time, and these eight
// threads read every other vector, so two of them meet in each bank (two cycles instead of one).
// `warptile` arranges the warp differently.
//
// If N or K is not a multiple of the vector, the same loop loads single elements, which is slower.

#include "../lib/tiles/vector_tiles.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
vectorized(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  constexpr int WIDTH = Vector<Scalar>::SIZE;
  __shared__ Vector<Scalar> a_tile[BK][BM / WIDTH + 1];  // transposed, with a vector of padding
  __shared__ Vector<Scalar> b_tile[BK][BN / WIDTH];

  const int row0 = blockIdx.y * BM;
  const int col0 = blockIdx.x * BN;
  const int t = threadIdx.x;
  const int y = t / (BN / TN) * TM;
  const int x = t % (BN / TN) * TN;
  const bool a_aligned = K % WIDTH == 0;
  const bool b_aligned = N % WIDTH == 0;

  Scalar sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    load_tiles<THREADS>(A, B, M, N, K, row0, col0, k0, a_aligned, b_aligned, a_tile, b_tile);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      add_outer_product<1, 1>(&a_tile[k][y / WIDTH], &b_tile[k][x / WIDTH], sum);
    }
    __syncthreads();
  }
  store_sums<1, 1>(sum, C, row0 + y, col0 + x, M, N, b_aligned);
}
