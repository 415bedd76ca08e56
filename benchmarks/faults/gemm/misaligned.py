"""The naive product, which stores to an odd address at EDGE 16: a misaligned address."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="stores to an odd address at EDGE 16: a misaligned address",
    tiles=edges(1, 32, because="EDGE×EDGE threads, and a block holds at most 1024"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
