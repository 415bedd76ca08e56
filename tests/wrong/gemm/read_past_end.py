"""Wrong on purpose: naive with one product too many."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="wrong: naive with one product too many",
    tiles=edges(1, 32, because="a block holds at most 1024 threads"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
