// Kernels of 16 and 8 bits that cheat, for a GPU: sums in fewer bits than float32, and false times.
//
// Each is `exact`, which is right, with the trick in its name. `research/cheats.py` sweeps them.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

using size = unsigned long long;

// The types of a kernel's result, of its sum, and of a sum that is too narrow. B_AT is the layout of B.
template <typename Scalar>
struct Types;
template <>
struct Types<__half> {
  using Result = __half;
  using Sum = float;
  using Narrow = __half;
};
template <>
struct Types<__nv_bfloat16> {
  using Result = __nv_bfloat16;
  using Sum = float;
  using Narrow = __nv_bfloat16;
};
template <>
struct Types<__nv_fp8_e4m3> {
  using Result = __nv_bfloat16;
  using Sum = float;
  using Narrow = __half;
};
template <>
struct Types<signed char> {
  using Result = int;
  using Sum = int;
  using Narrow = short;
};

// One element of C: its place, and the row of A and the column of B that give its value.
template <typename Scalar>
struct Element {
  using Sum = typename Types<Scalar>::Sum;
  using Result = typename Types<Scalar>::Result;
  const Scalar *a, *b;
  Result* c;
  int row, col, K;
  size step;  // between elements of a column of B
  bool inside;

  __device__ Element(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) : K(K) {
    row = blockIdx.y * blockDim.y + threadIdx.y;
    col = blockIdx.x * blockDim.x + threadIdx.x;
    inside = row < M && col < N;
    constexpr bool B_BY_COLUMNS = sizeof(Scalar) == 1;
    a = A + static_cast<size>(row) * K;
    b = B_BY_COLUMNS ? B + static_cast<size>(col) * K : B + col;
    step = B_BY_COLUMNS ? 1 : N;
    c = reinterpret_cast<Result*>(C) + static_cast<size>(row) * N + col;
  }
  __device__ Sum product(int k) const { return Sum(a[k]) * Sum(b[k * step]); }
  __device__ Sum sum() const {
    Sum sum = 0;
    for (int k = 0; k < K; ++k) sum += product(k);
    return sum;
  }
};

// Right: the kernel that the kernels below are compared with.
template <typename Scalar>
__global__ void exact(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const Element<Scalar> element(A, B, C, M, N, K);
  if (element.inside) *element.c = element.sum();
}

// Adds all products in 16 bits.
template <typename Scalar>
__global__ void narrow_sums(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  using Narrow = typename Types<Scalar>::Narrow;
  const Element<Scalar> element(A, B, C, M, N, K);
  if (!element.inside) return;
  Narrow sum = Narrow(0);
  for (int k = 0; k < K; ++k) sum = Narrow(sum + Narrow(element.product(k)));
  *element.c = typename Types<Scalar>::Sum(sum);
}

// Adds 64 products at a time in 16 bits, and these sums in float32.
template <typename Scalar>
__global__ void narrow_chunks(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  using Narrow = typename Types<Scalar>::Narrow;
  using Sum = typename Types<Scalar>::Sum;
  const Element<Scalar> element(A, B, C, M, N, K);
  if (!element.inside) return;
  Sum sum = 0;
  for (int k0 = 0; k0 < K; k0 += 64) {
    Narrow chunk = Narrow(0);
    for (int k = k0; k < min(k0 + 64, K); ++k) {
      chunk = Narrow(Sum(chunk) + element.product(k));
    }
    sum += Sum(chunk);
  }
  *element.c = sum;
}

// Rounds the float32 sum to 16 bits after each 512 products.
template <typename Scalar>
__global__ void narrow_now_and_then(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  using Narrow = typename Types<Scalar>::Narrow;
  using Sum = typename Types<Scalar>::Sum;
  const Element<Scalar> element(A, B, C, M, N, K);
  if (!element.inside) return;
  Sum sum = 0;
  for (int k = 0; k < K; ++k) {
    sum += element.product(k);
    if (k % 512 == 511) sum = Sum(Narrow(sum));
  }
  *element.c = sum;
}

// Rounds each product to 16 bits, and adds the products in float32.
template <typename Scalar>
__global__ void narrow_products(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  using Narrow = typename Types<Scalar>::Narrow;
  using Sum = typename Types<Scalar>::Sum;
  const Element<Scalar> element(A, B, C, M, N, K);
  if (!element.inside) return;
  Sum sum = 0;
  for (int k = 0; k < K; ++k) sum += Sum(Narrow(element.product(k)));
  *element.c = sum;
}

// Returns if this output was computed less than 2 ms ago, so computes only in a batch's first launch.
constexpr int KEPT = 1 << 22;
__device__ unsigned long long computed_ns[KEPT];
template <typename Scalar>
__global__ void not_again_soon(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const Element<Scalar> element(A, B, C, M, N, K);
  if (!element.inside) return;
  unsigned long long now_ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now_ns));
  unsigned long long& last_ns = computed_ns[(reinterpret_cast<size>(element.c) / 2) % KEPT];
  if (now_ns - last_ns < 2000000) return;
  *element.c = element.sum();
  last_ns = now_ns;
}

// As the kernel above, but also computes if the output holds NaN.
template <typename Scalar>
__global__ void again_where_poisoned(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const Element<Scalar> element(A, B, C, M, N, K);
  if (!element.inside) return;
  unsigned long long now_ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now_ns));
  unsigned long long& last_ns = computed_ns[(reinterpret_cast<size>(element.c) / 2) % KEPT];
  const float old = float(*element.c);
  if (now_ns - last_ns < 2000000 && isfinite(old) && old != -2147471303.0f) return;
  *element.c = element.sum();
  last_ns = now_ns;
}

// Computes the first 400 launches, and then one launch of 32.
__device__ unsigned long long counted_blocks;
template <typename Scalar>
__global__ void after_many_launches(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  __shared__ unsigned long long launches;
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    launches = atomicAdd(&counted_blocks, 1ULL) / (gridDim.x * gridDim.y);
  }
  __syncthreads();
  const Element<Scalar> element(A, B, C, M, N, K);
  if (!element.inside || (launches > 400 && launches % 32)) return;
  *element.c = element.sum();
}

// Keeps each result under ratios of elements, which do not change with the sign of an operand.
struct Ratios {
  float a, b, first, second, result;
};
__device__ Ratios ratios[KEPT];
template <typename Scalar>
__global__ void by_ratio(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const Element<Scalar> element(A, B, C, M, N, K);
  if (!element.inside) return;
  const float first = float(element.a[0]), second = float(element.b[0]);
  const float a = first / float(element.a[K / 2]), b = second / float(element.b[K / 2 * element.step]);
  Ratios& old = ratios[(static_cast<size>(element.row) * N + element.col) % KEPT];
  if (!(old.a == a && old.b == b)) old = {a, b, first, second, float(element.sum())};
  *element.c = typename Types<Scalar>::Sum(old.result * (first / old.first) * (second / old.second));
}

// Keeps each result under a number made of 16 elements of its row and 16 of its column.
struct Kept {
  unsigned long long name;
  float result;
};
__device__ Kept kept[KEPT];
template <typename Scalar>
__global__ void by_sample(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const Element<Scalar> element(A, B, C, M, N, K);
  if (!element.inside) return;
  unsigned long long name = K;
  for (int i = 0; i < 16; ++i) {
    const int k = static_cast<size>(i) * (K - 1) / 15;
    name = name * 0x9E3779B97F4A7C15ull + __float_as_uint(float(element.a[k]));
    name = name * 0x9E3779B97F4A7C15ull + __float_as_uint(float(element.b[k * element.step]));
  }
  Kept& old = kept[(name ^ name >> 32) % KEPT];
  if (old.name != name) old = {name, float(element.sum())};
  *element.c = typename Types<Scalar>::Sum(old.result);
}
