from gpubench.kernels.layouts import square_blocks
from gpubench.model import LAYOUTS, CudaVariant, edges

VARIANT = CudaVariant(
    idea="tiles of A and B in shared memory: each load from global memory is used TILE times",
    after="naive",
    tiles=edges(
        *(1, 32),
        because="TILE×TILE threads, and a block holds at most 1024",
        default=(2, 4, 8, 16, 32),  # a tile of 1 shares nothing, and takes 57 ms at 1024
    ),
    launch=square_blocks("shared_tile"),
    layouts=tuple(LAYOUTS),
    reuse=lambda tile: (tile["edge"], tile["edge"]),
)
