// Calls the check of an exported file on the CPU. test_export.py fills in the check and its type.
#include <cmath>
#include <cstring>
#include <type_traits>
#define __global__
using std::isnan;
struct Place { unsigned x, y, z; };
static Place blockIdx, blockDim{1, 1, 1}, threadIdx;
using Element = TYPE;
using Result = TYPE;
static void atomicMax(unsigned long long* at, unsigned long long value) {
  if (value > *at) *at = value;
}
static long long __double_as_longlong(double value) {
  long long bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
CHECK
extern "C" double worst(const Element* A, const Element* B, const Result* C) {
  unsigned long long bits = 0;
  for (blockIdx.y = 0; blockIdx.y < PRODUCT.rows; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < PRODUCT.columns; ++blockIdx.x)
      check(A, B, C, PRODUCT, &bits);
  double error;
  std::memcpy(&error, &bits, sizeof error);
  return error;
}
extern "C" double tolerance() { return TOLERANCE; }
