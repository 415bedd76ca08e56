from importlib.util import find_spec
from pathlib import Path

from gpubench.model import HostVariant, Space

WHEEL = find_spec("cutlass_library")  # pip install nvidia-cutlass
FOLDER = Path(WHEEL.origin).parent / "source" if WHEEL and WHEEL.origin else Path("cutlass")
VARIANT = HostVariant(
    idea="a Hopper GEMM of CUTLASS: warps that copy, and warpgroups that multiply",
    entry="{schedule}<{BM}, {BN}>",
    signature="int M, int N, int K, const half* A, const half* B, half* C, cudaStream_t stream",
    dtypes=("float16",),
    tiles=Space(
        axes={"BM": (64, 128, 256), "BN": (64, 128, 256), "schedule": ("cooperative", "pingpong")},
        block=("BM", "BN"),
        default=("128x256/schedule=cooperative",),
    ),
    compile_options=(
        f"-I{FOLDER}/include",
        f"-I{FOLDER}/tools/util/include",
        "--expt-relaxed-constexpr",
    ),
    refuse=lambda _, problem: (
        "the TMA copies rows of a multiple of 8 elements"
        if problem.n % 8 or problem.k % 8
        else None
    ),
)
