// vectorized: 128 bits an instruction, from global memory, to shared memory and out of it again.
//
// Against `blocktile_2d`: a thread moves 16 bytes at a time (four float32, two float64). That needs
// neighbours in memory, and a thread's elements of A's column were BK apart. So A's tile is stored
// transposed: a row of A is read as one vector along k and written as single elements, one a row of
// k, and the inner loop then reads columns of A as vectors, as it reads rows of B.
//
// Padding: the transposed writes of a warp go to the same column of many rows. With BM a multiple
// of 32 these rows all begin in bank 0. One vector more a row shifts each row by four banks, and
// keeps vectors aligned.
//
// At 8×8 and float32 a k costs four loads from shared memory for 64 multiply-adds. What remains:
// threads are TN columns apart, so a quarter of a warp, which a vector load serves at a time,
// reads every other vector and meets its neighbour's bank (two cycles instead of one). `warptile`
// lays the warp out differently.
//
// Vectors need aligned rows: where N or K is not a multiple of the vector, the same loop loads by
// elements, slower and right.

#include "../vector_tiles.cuh"

template <typename Scalar, int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
vectorized(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  constexpr int WIDTH = Vector<Scalar>::SIZE;
  __shared__ Vector<Scalar> a_tile[BK][BM / WIDTH + 1];  // transposed, a vector of padding a row
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
