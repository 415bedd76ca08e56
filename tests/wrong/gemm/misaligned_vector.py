"""Wrong on purpose: naive with 128-bit loads of A's rows, whatever K is."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="wrong: naive with 128-bit loads of A's rows, whatever K is",
    dtypes=("float32",),
    tiles=edges(1, 32, because="a block holds at most 1024 threads"),
    grid=("N/edge", "M/edge"),
    block=("edge", "edge"),
    reuse=lambda _tile: (1, 1),
)
