"""Wrong on purpose: shared_tile in dynamic shared memory, with rows one longer than asked for."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="wrong: shared_tile in dynamic shared memory, with rows one longer than asked for",
    dtypes=("float32",),
    tiles=edges(1, 32, because="a block holds at most 1024 threads"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    shared_bytes="2*edge*edge*4",
    reuse=lambda _tile: (1, 1),
)
