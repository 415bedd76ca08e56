"""The naive product, which reads far outside its matrices at EDGE 16: an illegal memory access."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="reads far outside its matrices at EDGE 16: an illegal memory access",
    tiles=edges(1, 32, because="EDGE×EDGE threads, and a block holds at most 1024"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
