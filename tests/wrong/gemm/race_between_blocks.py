"""Wrong on purpose: naive launched with two layers of blocks that do the same work."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="wrong: naive launched with two layers of blocks that do the same work",
    tiles=edges(1, 32, because="a block holds at most 1024 threads"),
    grid=("N/edge", "M/edge", 2),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
