// warptile: the tiles of a warp's 32 threads form one compact rectangle of C.
//
// Against `vectorized`: there a thread's elements were contiguous, and a warp's threads lay in one
// or two long rows: it read few rows of A, many columns of B, at a stride. Here a warp is 4×8
// threads and computes a tile of 4·TM × 8·TN. And a thread's elements are no longer contiguous:
// they come in groups of one vector, and neighbouring threads take neighbouring vectors.
//
// Access: for one vector of B the 8 threads of a row read 8 adjacent vectors (128 bytes at
// float32: every bank once), for one of A the 4 rows of threads read 4 adjacent ones and the rest
// is broadcast. No bank conflicts, and the warp's rectangle is nearer to a square, so it reads
// fewer distinct elements of shared memory for the same work.
//
// What remains is waiting: every thread loads a tile from global memory, stores it, meets the
// others at a barrier, computes, meets them again. `pipelined` loads ahead while it computes.

template <typename Scalar, int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
warptile(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  constexpr int THREADS = (BM / TM) * (BN / TN);
  constexpr int WIDTH = 16 / sizeof(Scalar);
  constexpr int WARP_ROWS = 4;  // of threads
  constexpr int WARP_COLS = 8;
  constexpr int WARPS_X = BN / (WARP_COLS * TN);
  struct alignas(16) Vector {
    Scalar of[WIDTH];
  };
  __shared__ Vector a_tile[BK][BM / WIDTH + 1];  // transposed, and a vector of padding a row
  __shared__ Vector b_tile[BK][BN / WIDTH];

  const int t = threadIdx.x;
  const int row0 = blockIdx.y * BM;
  const int col0 = blockIdx.x * BN;
  const int warp = t / 32;
  const int lane = t % 32;
  // The first vector of rows and of columns of this thread; the next ones are a row of threads on.
  const int y = warp / WARPS_X * (WARP_ROWS * TM / WIDTH) + lane / WARP_COLS;
  const int x = warp % WARPS_X * (WARP_COLS * TN / WIDTH) + lane % WARP_COLS;
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
      for (int i = 0; i < TM / WIDTH; ++i) a[i] = a_tile[k][y + i * WARP_ROWS];
#pragma unroll
      for (int j = 0; j < TN / WIDTH; ++j) b[j] = b_tile[k][x + j * WARP_COLS];
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
    const int row = row0 + (y + i / WIDTH * WARP_ROWS) * WIDTH + i % WIDTH;
    if (row >= M) continue;
    Scalar* c = C + static_cast<size_t>(row) * N;
#pragma unroll
    for (int j = 0; j < TN / WIDTH; ++j) {
      const int col = col0 + (x + j * WARP_COLS) * WIDTH;
      Vector vector;
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) vector.of[e] = sum[i][j * WIDTH + e];
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
