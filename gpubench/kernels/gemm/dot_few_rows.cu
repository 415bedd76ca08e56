// dot_few_rows: few rows of A, and so a product that is as fast as B can be read.
//
// A language model that writes one token for each of M users multiplies M rows by its weights, B.
// For M = 1 it uses each element of B once, so the limit is memory, as for `gemv_vectorized`.
// Tensor cores would multiply at least 8 rows, most of them zeros, from tiles in shared memory.
// Here a thread loads 16 bytes of several rows of B, and multiplies them by TM elements of A.
//
// Many loads and many threads keep memory busy. A thread has 16 bytes of UNROLL·V rows of B in
// flight (V elements are 16 bytes). The threads that a block has beyond its columns divide its part
// of K, and up to eight blocks of a cluster divide K: 256 blocks for 1×4096.
//
//     B      columns 0-3   4-7    ...   of 128, each a thread's 16 bytes
//     k = 0  thread 0      1      ...
//     ...
//     k = 4  thread 32     33     ...   the next V values of k: in float32 four
//
// The sums of a block's threads meet in shared memory, then those of the cluster's blocks
// (`cluster_sums.cuh`), each in a fixed order: the result is the same in every run.
//
// What limits it: each element of B needs TM multiply-adds, and with 16 bits also a
// conversion. From about 20 rows in float32 and 8 in 16 bits on, these take longer than memory.

#include "../lib/mma/bits16.cuh"
#include "../lib/cluster/cluster_sums.cuh"
#include "../lib/tma/tma.cuh"

constexpr int THREADS = 256;

// An element in memory, and a word of 16 bytes that are loaded at once: one element, or two.
template <typename Scalar>
struct Loaded {
  using Element = unsigned short;
  using Word = unsigned;
};
template <>
struct Loaded<float> {
  using Element = float;
  using Word = float;
};
template <typename Scalar>
using Element = typename Loaded<Scalar>::Element;
template <typename Scalar>
using Words = Vector<typename Loaded<Scalar>::Word>;
template <typename Scalar>
constexpr int ELEMENTS = Vector<Element<Scalar>>::SIZE;  // of 16 bytes

// Loads 16 bytes at element `at` of a row of `length` elements, with 0 past its end unless WHOLE.
template <typename Scalar, bool ALIGNED, bool WHOLE>
__device__ __forceinline__ Words<Scalar>
load_words(const Element<Scalar>* row, int at, int length) {
  if constexpr (ALIGNED) {
    if (WHOLE || at < length) return *reinterpret_cast<const Words<Scalar>*>(row + at);
    return {};
  } else {
    const union {
      Vector<Element<Scalar>> elements;
      Words<Scalar> words;
    } both = {load_vector(row, at, length, false)};
    return both.words;
  }
}

template <typename Scalar>
__device__ __forceinline__ float number(const Words<Scalar>& words, int place) {
  if constexpr (ELEMENTS<Scalar> == 4) {
    return words.lanes[place];
  } else {
    const unsigned word = words.lanes[place / 2];
    if constexpr (IS_BFLOAT16<Scalar>) {
      return __uint_as_float(place % 2 ? word & 0xffff0000u : word << 16);
    }
    float value;
    asm volatile("cvt.f32.f16 %0, %1;"
                 : "=f"(value)
                 : "h"(static_cast<unsigned short>(place % 2 ? word >> 16 : word)));
    return value;
  }
}

// Stores four neighbouring results of a row of `length` elements, without those past its end.
template <typename Scalar>
__device__ __forceinline__ void
store_rounded(const Vector<float>& sums, Element<Scalar>* row, int at, int length, bool aligned) {
  if constexpr (ELEMENTS<Scalar> == 4) {
    store_vector(sums, row, at, length, aligned);
  } else {
    const unsigned pairs[2] = {pack<Scalar>(sums.lanes[0], sums.lanes[1]),
                               pack<Scalar>(sums.lanes[2], sums.lanes[3])};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (at + e < length) row[at + e] = static_cast<unsigned short>(pairs[e / 2] >> e % 2 * 16);
    }
  }
}

// Number of blocks of a multiprocessor for which registers suffice. Without this number the
// compiler spreads the loads over the multiply-adds to save registers, and few are in flight.
template <typename Scalar>
constexpr int resident_blocks(int rows, int unroll) {
  constexpr int V = ELEMENTS<Scalar>;
  const int registers = 4 * unroll * (V + rows) + rows * V + 40;
  return registers <= 80 ? 3 : registers <= 128 ? 2 : 1;
}

// Adds UNROLL vectors of k, APART values of k from each other: loads all, and then multiplies.
template <typename Scalar, bool ALIGNED, bool WHOLE, int UNROLL, int APART, int TM, int V>
__device__ __forceinline__ void
add_rows(float (&sum)[TM][V], const Element<Scalar>* const (&a)[TM], const Element<Scalar>* b,
         int first, int end, int col, int N) {
  Words<Scalar> of_b[UNROLL][V], of_a[UNROLL][TM];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const int k = first + u * APART;
#pragma unroll
    for (int e = 0; e < V; ++e) {
      of_b[u][e] = load_words<Scalar, ALIGNED, WHOLE>(b + static_cast<size_t>(k + e) * N, col,
                                                      k + e < end ? N : 0);
    }
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      of_a[u][i] = load_words<Scalar, ALIGNED, WHOLE>(a[i], k, end);
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
    for (int e = 0; e < V; ++e) {
      float row_of_b[V];
#pragma unroll
      for (int j = 0; j < V; ++j) row_of_b[j] = number<Scalar>(of_b[u][e], j);
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const float of_row = number<Scalar>(of_a[u][i], e);
#pragma unroll
        for (int j = 0; j < V; ++j) sum[i][j] += of_row * row_of_b[j];
      }
    }
  }
}

// ALIGNED: all rows of A and B begin at a multiple of 16 bytes.
template <typename Scalar, int BM, int BN, int TM, int UNROLL, int SPLITS, bool ALIGNED = true>
__global__ void __launch_bounds__(THREADS, resident_blocks<Scalar>(TM, UNROLL))
dot_few_rows(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  extern __shared__ __align__(16) float shared[];
  constexpr int V = ELEMENTS<Scalar>;
  constexpr int ACROSS = BN / V;
  constexpr int LANES = THREADS / (ACROSS * (BM / TM));  // threads that share K
  constexpr int DEPTH = LANES * V * UNROLL;              // values of k of a step
  const int down = (M + BM - 1) / BM;
  const int tile = blockIdx.x / SPLITS;
  const int part = blockIdx.x % SPLITS;
  const int row0 = tile % down * BM;
  const int col0 = tile / down * BN;
  const int col = col0 + threadIdx.x % ACROSS * V;
  const int row = threadIdx.x / ACROSS % (BM / TM) * TM;
  const int lane = threadIdx.x / (ACROSS * (BM / TM));
  const StepsOfPart steps((K + DEPTH - 1) / DEPTH, part, SPLITS);
  const int end = min((steps.first + steps.count) * DEPTH, K);
  const Element<Scalar>* a[TM];  // beyond the edge the last row again, whose sums are not stored
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    a[i] = reinterpret_cast<const Element<Scalar>*>(A) +
           static_cast<size_t>(min(row0 + row + i, M - 1)) * K;
  }
  const Element<Scalar>* const b = reinterpret_cast<const Element<Scalar>*>(B);
  Element<Scalar>* const c = reinterpret_cast<Element<Scalar>*>(C);
  start_next_launch();
  wait_for_previous_launch();

  float sum[TM][V] = {};
  int first = steps.first * DEPTH;
  if (col0 + BN <= N) {
#pragma unroll 1
    for (; first + DEPTH <= end; first += DEPTH) {
      add_rows<Scalar, ALIGNED, true, UNROLL, LANES * V>(sum, a, b, first + lane * V, end, col, N);
    }
  }
#pragma unroll 1
  for (; first < end; first += DEPTH) {
    add_rows<Scalar, ALIGNED, false, UNROLL, LANES * V>(sum, a, b, first + lane * V, end, col, N);
  }

  using Four = Vector<float>;
  Four* const sums = reinterpret_cast<Four*>(shared);  // of each lane: BM rows of BN
#pragma unroll
  for (int i = 0; i < TM; ++i) {
#pragma unroll
    for (int j = 0; j < V; j += 4) {
      sums[((lane * BM + row + i) * BN + col - col0 + j) / 4] = {sum[i][j], sum[i][j + 1],
                                                                 sum[i][j + 2], sum[i][j + 3]};
    }
  }
  __syncthreads();
  if constexpr (LANES > 1) {
    for (int i = threadIdx.x; i < BM * BN / 4; i += THREADS) {
      Four total = sums[i];
#pragma unroll
      for (int other = 1; other < LANES; ++other) {
        const Four more = sums[other * (BM * BN / 4) + i];
#pragma unroll
        for (int e = 0; e < 4; ++e) total.lanes[e] += more.lanes[e];
      }
      sums[i] = total;
    }
  }
  add_parts<SPLITS, 1, BM, BN, BN * 4, THREADS, float>(
      shared_address(shared), part, 0, [&](int i, int j, const Four& four) {
        if (row0 + i >= M) return;
        store_rounded<Scalar>(four, c + static_cast<size_t>(row0 + i) * N, col0 + j, N, ALIGNED);
      });
}
