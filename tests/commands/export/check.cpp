// Calls the check of an exported file on the CPU. test_export.py fills in the check and its type.
#include <cmath>
#include <cstring>
#include <type_traits>
#define __global__
using std::isnan;
struct Place { unsigned x, y, z; };
static Place gridDim, blockIdx, blockDim{1, 8, 1}, threadIdx;
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
  gridDim = {unsigned(PRODUCT.columns), GRID_Y, GRID_Z};
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
        for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
          check(A, B, C, PRODUCT, &bits);
  double error;
  std::memcpy(&error, &bits, sizeof error);
  return error;
}
extern "C" double tolerance() { return TOLERANCE; }
