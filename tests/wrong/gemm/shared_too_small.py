"""Wrong on purpose: shared_tile with a row too few in the tile of B."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="wrong: shared_tile with a row too few in the tile of B",
    tiles=edges(2, 32, because="a block holds at most 1024 threads"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
