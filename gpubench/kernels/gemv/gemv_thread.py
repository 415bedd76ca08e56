from gpubench.kernels.vectors import THREADS, tile_grid
from gpubench.model import CudaVariant

VARIANT = CudaVariant(
    idea="one thread per row: neighbours read N elements apart, uncoalesced",
    tiles=tile_grid({"threads": THREADS}, default=("128", "256")),
    grid="M/threads",
    block="threads",
    reuse=lambda _tile: (1, 1),
)
