"""A variant with kernels of 16 and 8 bits that cheat. A tile selects one in `cheat_narrow.cu`."""

from gpubench.model import CudaVariant, Space

NARROW = ("narrow_sums", "narrow_chunks", "narrow_now_and_then", "narrow_products")
SOON = ("not_again_soon", "again_where_poisoned", "after_many_launches")
KERNELS = ("exact", *NARROW, *SOON, "by_sample", "by_ratio")

VARIANT = CudaVariant(
    idea="kernels of 16 and 8 bits that cheat, and one that does not",
    kernel="{kernel}<{scalar}>",
    dtypes=("float16", "bfloat16", "float8_e4m3", "int8"),
    tiles=Space(
        axes={"edge": (16,), "kernel": KERNELS},
        block=("edge",),
        default=tuple(f"16/kernel={name}" for name in KERNELS),
    ),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
)
