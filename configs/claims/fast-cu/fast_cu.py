"""Kernels 11 and 12 of fast.cu: the tile is the number of the kernel."""

from gpubench.model import HostVariant, Space

VARIANT = HostVariant(
    idea="kernels 11 and 12 of fast.cu, by number",
    file="fast_cu.cu",
    entry="call_{kernel}",
    # B column by column, and Cᵀ = Bᵀ·Aᵀ, since these kernels write C column by column.
    signature=(
        "int M=N, int N=M, int K, __nv_bfloat16* A=B, __nv_bfloat16* B=A, __nv_bfloat16* C"
    ),
    column_major=("B",),
    dtypes=("bfloat16",),
    tiles=Space(axes={"kernel": (11, 12)}, block=("kernel",), default=("11", "12")),
    compile_options=("-O3", "-DNDEBUG", "--use_fast_math", "--expt-relaxed-constexpr",
                     "--expt-extended-lambda", "-w"),
    refuse=lambda _tile, problem: (
        None if problem.m == problem.n == problem.k and problem.m % 1024 == 0
        else "its program runs squares; their size must be a multiple of 1024"
    ),
)  # fmt: skip
