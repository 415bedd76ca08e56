"""Wrong on purpose: shared_tile without the barrier between using tiles and loading the next."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="wrong: shared_tile without the barrier between using tiles and loading the next",
    tiles=edges(1, 32, because="a block holds at most 1024 threads"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
