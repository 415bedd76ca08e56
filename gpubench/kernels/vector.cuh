// vector: 16 bytes of neighbouring elements, the most that one load instruction moves.

#pragma once

template <typename Scalar>
struct alignas(16) Vector {
  static constexpr int SIZE = 16 / sizeof(Scalar);
  Scalar lanes[SIZE];
};

// Whether every row of a row-major matrix with N columns, and the vector, start at 16 bytes: then
// all of both can be loaded as vectors.
template <typename Scalar>
__device__ inline bool aligned(const Scalar* A, const Scalar* x, int N) {
  const size_t addresses = reinterpret_cast<size_t>(A) | reinterpret_cast<size_t>(x);
  return N % Vector<Scalar>::SIZE == 0 && addresses % 16 == 0;
}

// A vector that is wanted once: its place in the caches is free for others at once.
template <typename Scalar>
__device__ inline Vector<Scalar> streamed(const Vector<Scalar>* from) {
#ifdef __CUDA_ARCH__
  union {
    int4 bits;
    Vector<Scalar> pack;
  } both;
  both.bits = __ldcs(reinterpret_cast<const int4*>(from));
  return both.pack;
#else
  return *from;
#endif
}
