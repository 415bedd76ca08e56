"""Wrong on purpose: naive that rounds A's elements to 16 significant bits."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="wrong: naive that rounds A's elements to 16 significant bits",
    tiles=edges(1, 32, because="a block holds at most 1024 threads"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
