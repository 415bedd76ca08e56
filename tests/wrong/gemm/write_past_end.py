"""Wrong on purpose: naive that lets one row too many through."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="wrong: naive that lets one row too many through",
    tiles=edges(1, 32, because="a block holds at most 1024 threads"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
