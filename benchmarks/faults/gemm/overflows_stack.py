"""The naive product, which recurses without end at EDGE 16: a stack overflow."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="recurses without end at EDGE 16: a stack overflow",
    tiles=edges(1, 32, because="EDGE×EDGE threads, and a block holds at most 1024"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
