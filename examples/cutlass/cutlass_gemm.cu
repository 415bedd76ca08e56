// A GEMM of CUTLASS for Hopper: warps that copy by TMA, and two warpgroups that multiply by wgmma.

#include <cuda_fp16.h>

#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

template <int BM, int BN, class Schedule, class Epilogue>
cutlass::Status run(int M, int N, int K, const half *A, const half *B, half *C, cudaStream_t stream) {
  using namespace cutlass;
  using Row = layout::RowMajor;
  using Tile = cute::Shape<cute::Int<BM>, cute::Int<BN>, cute::_64>;
  using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
  using Store = typename epilogue::collective::CollectiveBuilder<
      arch::Sm90, arch::OpClassTensorOp, Tile, Cluster, epilogue::collective::EpilogueTileAuto, float,
      float, void, Row, 8, half_t, Row, 8, Epilogue>::CollectiveOp;
  using Main = typename gemm::collective::CollectiveBuilder<
      arch::Sm90, arch::OpClassTensorOp, half_t, Row, 8, half_t, Row, 8, float, Tile, Cluster,
      gemm::collective::StageCountAutoCarveout<sizeof(typename Store::SharedStorage)>,
      Schedule>::CollectiveOp;
  using Gemm = gemm::device::GemmUniversalAdapter<
      gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Main, Store>>;

  static const KernelHardwareInfo device{0, KernelHardwareInfo::query_device_multiprocessor_count(0)};
  typename Gemm::Arguments arguments{
      gemm::GemmUniversalMode::kGemm,
      {M, N, K, 1},
      {reinterpret_cast<const half_t *>(A),
       make_cute_packed_stride(typename Gemm::GemmKernel::StrideA{}, {M, K, 1}),
       reinterpret_cast<const half_t *>(B),
       make_cute_packed_stride(typename Gemm::GemmKernel::StrideB{}, {N, K, 1})},
      {{1.0f, 0.0f}, nullptr, {}, reinterpret_cast<half_t *>(C),
       make_cute_packed_stride(typename Gemm::GemmKernel::StrideD{}, {M, N, 1})},
      device};
  if (Status status = Gemm::can_implement(arguments); status != Status::kSuccess) return status;
  return Gemm{}.run(arguments, nullptr, stream);
}

template <int BM, int BN>
cutlass::Status cooperative(int M, int N, int K, const half *A, const half *B, half *C, cudaStream_t stream) {
  return run<BM, BN, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
             cutlass::epilogue::TmaWarpSpecializedCooperative>(M, N, K, A, B, C, stream);
}

template <int BM, int BN>
cutlass::Status pingpong(int M, int N, int K, const half *A, const half *B, half *C, cudaStream_t stream) {
  return run<BM, BN, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
             cutlass::epilogue::TmaWarpSpecialized>(M, N, K, A, B, C, stream);
}
