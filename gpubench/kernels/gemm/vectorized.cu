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
// reads every other vector and meets its neighbour's bank (two turns instead of one). `warptile`
// lays the warp out differently.
//
// Vectors need aligned rows: where N or K is no multiple of the vector, the same loop loads by
// elements, slower and right.

template <typename Scalar, int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
vectorized(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  constexpr int WIDTH = 16 / sizeof(Scalar);
  struct alignas(16) Vector {
    Scalar of[WIDTH];
  };
  __shared__ Vector a_tile[BK][BM / WIDTH + 1];  // transposed, and a vector of padding a row
  __shared__ Vector b_tile[BK][BN / WIDTH];

  const int t = threadIdx.x;
  const int row0 = blockIdx.y * BM;
  const int col0 = blockIdx.x * BN;
  const int y = t / (BN / TN) * TM;
  const int x = t % (BN / TN) * TN;
  const bool a_aligned = K % WIDTH == 0;
  const bool b_aligned = N % WIDTH == 0;

  // WIDTH elements of a row of `length`, those past its end as 0.
  const auto load = [](const Scalar* row, int at, int length, bool aligned) {
    Vector vector = {};
    if (aligned) {
      if (at < length) vector = *reinterpret_cast<const Vector*>(row + at);
    } else {
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) {
        if (at + e < length) vector.of[e] = row[at + e];
      }
    }
    return vector;
  };

  Scalar sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = t; i < BM * BK / WIDTH; i += THREADS) {
      const int row = i / (BK / WIDTH);
      const int k = i % (BK / WIDTH) * WIDTH;
      Vector vector = {};
      if (row0 + row < M) vector = load(A + static_cast<size_t>(row0 + row) * K, k0 + k, K, a_aligned);
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) a_tile[k + e][row / WIDTH].of[row % WIDTH] = vector.of[e];
    }
    for (int i = t; i < BK * BN / WIDTH; i += THREADS) {
      const int k = i / (BN / WIDTH);
      const int col = i % (BN / WIDTH);
      Vector vector = {};
      if (k0 + k < K) {
        vector = load(B + static_cast<size_t>(k0 + k) * N, col0 + col * WIDTH, N, b_aligned);
      }
      b_tile[k][col] = vector;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      Vector a[TM / WIDTH];
      Vector b[TN / WIDTH];
#pragma unroll
      for (int i = 0; i < TM / WIDTH; ++i) a[i] = a_tile[k][y / WIDTH + i];
#pragma unroll
      for (int j = 0; j < TN / WIDTH; ++j) b[j] = b_tile[k][x / WIDTH + j];
#pragma unroll
      for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) {
          sum[i][j] += a[i / WIDTH].of[i % WIDTH] * b[j / WIDTH].of[j % WIDTH];
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = row0 + y + i;
    if (row >= M) break;
    Scalar* c = C + static_cast<size_t>(row) * N;
#pragma unroll
    for (int j = 0; j < TN; j += WIDTH) {
      const int col = col0 + x + j;
      Vector vector;
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) vector.of[e] = sum[i][j + e];
      if (b_aligned) {
        if (col < N) *reinterpret_cast<Vector*>(c + col) = vector;
      } else {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
          if (col + e < N) c[col + e] = vector.of[e];
        }
      }
    }
  }
}
