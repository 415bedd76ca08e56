// nvcuda::wmma. Each lane has the whole tile of an operand, and stores its share of the result.
//
// Sums are in float32. Their order and rounding differ from those of tensor cores.
#pragma once

#ifdef ON_CPU_RECORDS
#error "on a GPU, a fragment's accesses differ from the accesses in this file"
#endif

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

// A fragment has the rows and columns of its use: MxK, KxN or MxN.
template <typename Use, int M, int N, int K, typename T, typename Layout = void>
struct fragment {
  static constexpr bool IS_A = std::is_same_v<Use, matrix_a>, IS_B = std::is_same_v<Use, matrix_b>;
  static constexpr int ROWS = IS_B ? K : M, COLUMNS = IS_A ? K : N;
  static constexpr int num_elements = ROWS * COLUMNS;
  using element_type = std::conditional_t<std::is_same_v<T, precision::tf32>, float, T>;
  element_type x[num_elements];
};

inline float __float_to_tf32(float value) {
  const unsigned bits = __builtin_bit_cast(unsigned, value) + (1u << 12);  // ties away from 0
  return __builtin_bit_cast(float, bits & ~0u << 13);
}

template <typename F, typename V>
void fill_fragment(F& into, V value) {
  for (auto& x : into.x) x = static_cast<typename F::element_type>(value);
}

namespace on_cpu_parts {
template <typename F>
void load(F& into, const typename F::element_type* from, unsigned stride, bool by_rows) {
  for (int row = 0; row < F::ROWS; ++row) {
    for (int column = 0; column < F::COLUMNS; ++column) {
      into.x[row * F::COLUMNS + column] = from[by_rows ? row * stride + column : column * stride + row];
    }
  }
}
}  // namespace on_cpu_parts

template <typename Use, int M, int N, int K, typename T, typename Layout>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& into,
                      const typename fragment<Use, M, N, K, T, Layout>::element_type* from,
                      unsigned stride) {
  on_cpu_parts::load(into, from, stride, std::is_same_v<Layout, row_major>);
}
template <int M, int N, int K, typename T>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& into, const T* from, unsigned stride,
                      layout_t layout) {
  on_cpu_parts::load(into, from, stride, layout == mem_row_major);
}

template <int M, int N, int K, typename T>
void store_matrix_sync(T* to, const fragment<accumulator, M, N, K, T>& from, unsigned stride,
                       layout_t layout) {
  for (int i = static_cast<int>(on_cpu::lane()); i < M * N; i += warpSize) {
    const int row = i / N, column = i % N;
    to[layout == mem_row_major ? row * stride + column : column * stride + row] = from.x[i];
  }
}

template <int M, int N, int K, typename TA, typename LA, typename TB, typename LB, typename TC,
          typename TD>
void mma_sync(fragment<accumulator, M, N, K, TD>& d, const fragment<matrix_a, M, N, K, TA, LA>& a,
              const fragment<matrix_b, M, N, K, TB, LB>& b,
              const fragment<accumulator, M, N, K, TC>& c) {
  using Sum = std::conditional_t<std::is_integral_v<TC> || std::is_same_v<TC, double>, TC, float>;
  for (int i = 0; i < M * N; ++i) d.x[i] = static_cast<TD>(c.x[i]);
  for (int i = static_cast<int>(on_cpu::lane()); i < M * N; i += warpSize) {  // this lane's share
    const auto *row = a.x + i / N * K, *column = b.x + i % N;
    Sum sum = static_cast<Sum>(c.x[i]);
    for (int k = 0; k < K; ++k) sum += static_cast<Sum>(row[k]) * static_cast<Sum>(column[k * N]);
    d.x[i] = static_cast<TD>(sum);
  }
}

}  // namespace nvcuda::wmma
