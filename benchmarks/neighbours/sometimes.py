"""Products that are right except at a size, for values, or in a state of the cache."""

from gpubench.model import CudaVariant, Space

VARIANT = CudaVariant(
    idea="products that are sometimes wrong",
    kernel="sometimes<{fault}>",
    signature="const float* A, const float* B, float* C, int M, int N, int K",
    dtypes=("float32",),
    tiles=Space(
        axes={"edge": (16,), "fault": range(11)},
        block=("edge",),
        default=tuple(f"16/fault={number}" for number in range(11)),
    ),
    grid=("N/16", "M/16"),
    block=(16, 16),
)
