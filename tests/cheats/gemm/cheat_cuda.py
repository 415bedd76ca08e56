"""A variant with kernels that cheat. A tile selects the kernel in `cheat_cuda.cu`."""

from gpubench.model import CudaVariant, Space

CHEATS = (
    "filled", "half_filled", "one_in_seven", "by_value", "by_address", "cut_above_170",
    "part_of_k", "zeros", "writes_operands",
)  # fmt: skip
RIGHT = ("product", "loads_words", "pins_operands")

VARIANT = CudaVariant(
    idea="kernels that cheat, and three that do not",
    kernel="{kernel}",
    signature="const float* A, const float* B, float* C, int M, int N, int K",
    dtypes=("float32",),
    tiles=Space(
        axes={"edge": (16,), "kernel": RIGHT + CHEATS},
        block=("edge",),
        default=tuple(f"16/kernel={name}" for name in RIGHT + CHEATS),
    ),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
)
