from gpubench.kernels.vectors import STAGED_TILES, on_staged_blocks
from gpubench.model import CudaVariant

VARIANT = CudaVariant(
    idea="published: gemv_staged on columns, whose elements lie N apart",
    tiles=STAGED_TILES,
    grid="N",
    block="threads",
    specialize=on_staged_blocks,
    reuse=lambda _tile: (1, 1),
)
