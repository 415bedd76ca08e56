"""CUDA-L2's kernels for the H100: one for each shape, so the tile is the shape."""

from gpubench.model import HostVariant, Space

EXTENTS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384)

VARIANT = HostVariant(
    idea="the kernel that CUDA-L2 has for the shape",
    file="cuda_l2.cu",
    entry="call",
    signature="int M, int N, int K, half* A, half* B, half* C",
    column_major=("B",),
    dtypes=("float16",),
    tiles=Space(
        axes={"BM": EXTENTS, "BN": EXTENTS, "BK": EXTENTS},
        block=("BM", "BN", "BK"),
        default=("64x64x64",),
    ),
    refuse=lambda tile, problem: (
        None
        if (problem.m, problem.n, problem.k) == tuple(tile.numbers("BM", "BN", "BK"))
        else "a kernel of CUDA-L2 is for one shape"
    ),
    auto_tiles=lambda problem, _multiprocessors: (f"{problem.m}x{problem.n}x{problem.k}",),
    # The options of its tools/utils.py, and their own header for torch::Tensor.
    compile_options=(
        '-DKERNEL_FILE="checkout/kernels/h100_F32F16F16F32/{BM}_{BN}_{BK}.cu"',
        "-O3",
        "-std=c++17",
        "-U__CUDA_NO_HALF_OPERATORS__",
        "-U__CUDA_NO_HALF_CONVERSIONS__",
        "-U__CUDA_NO_HALF2_OPERATORS__",
        "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
        "--expt-relaxed-constexpr",
        "--expt-extended-lambda",
        "--use_fast_math",
        "-w",
        "-I.",
        "-Icheckout/cutlass/include",
        "-Icheckout/cutlass/tools/util/include",
    ),
)
