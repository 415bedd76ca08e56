"""Wrong on purpose: a warp an element, summed in shared memory without __syncwarp."""

from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="wrong: a warp an element, summed in shared memory without __syncwarp",
    tiles=edges(1, 32, because="a block holds at most 1024 threads"),
    grid=("N", "M/edge"),
    block=(32, "edge"),
    reuse=lambda _tile: (1, 1),
)
