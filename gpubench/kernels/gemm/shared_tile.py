"""Tiles of A and B staged through shared memory, one element of C per thread."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="tiles of A and B in shared memory: each load from global memory is used TILE times",
    after="naive",
    tiles=edges(1, 32, because="TILE×TILE threads, and a block holds at most 1024"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda tile: (tile["edge"], tile["edge"]),
)
