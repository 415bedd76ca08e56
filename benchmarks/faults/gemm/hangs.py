"""The naive product, which spins for a minute at EDGE 16."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="spins for a minute at EDGE 16, and not for ever: the GPU may be shared",
    tiles=edges(1, 32, because="EDGE×EDGE threads, and a block holds at most 1024"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
