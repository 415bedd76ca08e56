from gpubench.kernels.vectors import THREADS, tile_grid
from gpubench.model import CudaVariant

VARIANT = CudaVariant(
    idea="one thread per column: neighbours read side by side, but threads are few",
    tiles=tile_grid({"threads": THREADS}, default=("32", "128")),
    grid="N/threads",
    block="threads",
    reuse=lambda _tile: (1, 1),
)
