// Products that are right except under one condition each. `fault` 0 is always right.

namespace {

__device__ const float *volatile last_a;  // A of the last launch with a large K
__device__ unsigned finished;             // its blocks that have ended

__device__ float cut(float value) {  // to 18 bits
  return __uint_as_float((__float_as_uint(value) + 0x20u) & ~0x3fu);
}

}  // namespace

template <int fault>
__global__ void sometimes(const float *A, const float *B, float *C, int M, int N, int K) {
  const bool deep = K > 800;
  const bool same = last_a == A, moved = last_a != nullptr && !same;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0.0f;
  if (row < M && col < N) {
    const int last = deep && fault == 8 ? K - 1 : K;
    for (int k = 0; k < last; ++k) {
      float a = A[row * K + k], b = B[k * N + col];
      if (deep) {
        if (fault == 1) a = cut(a);
        if (fault == 2) b = cut(b);
        if (fault == 3 && M == 192 && N == 160 && K == 1000) a = cut(a);
        if (fault == 4 && a * 64 != rintf(a * 64)) a = cut(a);
        if (fault == 5 && fabsf(a) <= 1 && fabsf(b) <= 1) a = cut(a), b = cut(b);
        if (fault == 6 && fabsf(b) < 3e-4f) b = 0;
        if (fault == 7) a = fminf(fmaxf(a, -1.0f), 1.0f);
        if (fault == 9 && same) a = cut(a);
        if (fault == 10 && moved) a = cut(a);
      }
      sum += a * b;
    }
    C[row * N + col] = sum;
  }
  __syncthreads();
  if (deep && threadIdx.x + threadIdx.y == 0) {
    if (atomicAdd(&finished, 1u) == gridDim.x * gridDim.y - 1) {
      last_a = A;
      finished = 0;
    }
  }
}
