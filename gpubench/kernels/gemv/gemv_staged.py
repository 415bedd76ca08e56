from gpubench.kernels.vectors import STAGED_TILES, on_staged_blocks
from gpubench.model import CudaVariant

VARIANT = CudaVariant(
    idea="published: x in shared memory part by part, a tree for each row",
    tiles=STAGED_TILES,
    grid="M",
    block="threads",
    specialize=on_staged_blocks,
    reuse=lambda _tile: (1, 1),
)
