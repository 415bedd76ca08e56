// vector: 16 bytes of neighbours, the maximum of a load. `vectorized` introduces them.

#pragma once

template <typename Scalar>
struct alignas(16) Vector {
  static constexpr int SIZE = 16 / sizeof(Scalar);
  Scalar lanes[SIZE];
};

// Whether every row of a row-major matrix with N columns, and the vector x, start at a multiple of
// 16 bytes. Then both can be loaded as vectors.
template <typename Scalar>
__device__ inline bool aligned(const Scalar* A, const Scalar* x, int N) {
  const size_t addresses = reinterpret_cast<size_t>(A) | reinterpret_cast<size_t>(x);
  return N % Vector<Scalar>::SIZE == 0 && addresses % 16 == 0;
}

// Loads a vector that is used once. The caches evict it first.
template <typename Scalar>
__device__ inline Vector<Scalar> load_streaming(const Vector<Scalar>* from) {
#ifdef __CUDACC__
  union {
    int4 bits;
    Vector<Scalar> vector;
  } both;
  both.bits = __ldcs(reinterpret_cast<const int4*>(from));
  return both.vector;
#else
  return *from;
#endif
}

// Loads the vector that starts at element `at` of a row of `length` elements, with 0 for elements
// past the row's end. `aligned`: the row starts and ends at a multiple of 16 bytes.
template <typename Scalar>
__device__ __forceinline__ Vector<Scalar> load_vector(const Scalar* row, int at, int length,
                                                      bool aligned) {
  Vector<Scalar> vector = {};
  if (aligned) {
    if (at < length) vector = *reinterpret_cast<const Vector<Scalar>*>(row + at);
  } else {
#pragma unroll
    for (int e = 0; e < Vector<Scalar>::SIZE; ++e) {
      if (at + e < length) vector.lanes[e] = row[at + e];
    }
  }
  return vector;
}

// Stores a vector, without elements past the row's end.
template <typename Scalar>
__device__ __forceinline__ void store_vector(const Vector<Scalar>& vector, Scalar* row, int at,
                                             int length, bool aligned) {
  if (aligned) {
    if (at < length) *reinterpret_cast<Vector<Scalar>*>(row + at) = vector;
  } else {
#pragma unroll
    for (int e = 0; e < Vector<Scalar>::SIZE; ++e) {
      if (at + e < length) row[at + e] = vector.lanes[e];
    }
  }
}
