"""The naive product, which leaves out the last product of each sum at EDGE 16."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="leaves out the last product of each sum at EDGE 16",
    tiles=edges(1, 32, because="EDGE×EDGE threads, and a block holds at most 1024"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
