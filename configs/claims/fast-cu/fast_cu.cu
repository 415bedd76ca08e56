// Calls kernels 11 and 12 of fast.cu with any operands. Its functions keep the tensor maps and the
// order of the tiles of the first call of an M. So the maps are made again before each call, and the
// order where N has changed.
#include "checkout/matmul.cu"

// The driver's function as the runtime finds it, so that no library has to be linked.
extern "C" CUresult CUDAAPI cuTensorMapEncodeTiled(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
    const cuuint64_t *extents, const cuuint64_t *strides, const cuuint32_t *box,
    const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  void *function = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, 0, &found);
  if (!function) return CUDA_ERROR_NOT_FOUND;
  auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  return encode(map, type, rank, address, extents, strides, box, steps, interleave, swizzle,
                promotion, fill);
}

#define MAPS(kernel)                                                 \
  if (kernel::_prev_n != N) kernel::_prev_m = 0;                     \
  kernel::d_tma_map_A = kernel::create_tensor_map<128, 64>(A, M, K); \
  kernel::d_tma_map_B = kernel::create_tensor_map<256, 64>(B, N, K)

void call_11(int M, int N, int K, bf16 *A, bf16 *B, bf16 *C) {
  MAPS(M11);
  M11::d_tma_map_C = M11::create_tensor_map<256, 128, false>(C, N, M);
  runKernel11(M, N, K, A, B, C, nullptr);
}

void call_12(int M, int N, int K, bf16 *A, bf16 *B, bf16 *C) {
  MAPS(M12);
  M12::d_tma_map_C = M12::create_tensor_map<256, 64, false, true>(C, N, M);
  runKernel12(M, N, K, A, B, C, nullptr);
}
