"""The naive product, which asserts a false condition at EDGE 16: a device-side assertion."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="asserts a false condition at EDGE 16: a device-side assertion",
    tiles=edges(1, 32, because="EDGE×EDGE threads, and a block holds at most 1024"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
