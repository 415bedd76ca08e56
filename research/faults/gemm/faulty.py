"""A variant with a kernel for each fault. A tile selects the kernel in `faulty.cu`."""

from gpubench.model import CudaVariant, Space

FAULTS = (
    "asserts", "does_not_compile", "hangs", "illegal_access", "misaligned",
    "overflows_stack", "wrong",
)  # fmt: skip

VARIANT = CudaVariant(
    idea="the naive product, which has one fault at edge 16",
    kernel="{fault}<{scalar}, {edge}>",
    dtypes=("float32",),
    tiles=Space(
        axes={"edge": (8, 16, 32), "fault": FAULTS},
        block=("edge",),
        default=tuple(f"{edge}/fault={name}" for name in FAULTS for edge in (8, 16, 32)),
    ),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
)
