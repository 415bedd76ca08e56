from gpubench.kernels.block_tiles import block_per_tile, blocks, rows_and_columns, whole_warps
from gpubench.model import CudaVariant

VARIANT = CudaVariant(
    idea="a warp computes a 4·TM × 8·TN rectangle and reads shared memory without conflicts",
    after="vectorized",
    tiles=blocks(
        rows=(64, 128),
        columns=(64, 128),
        depths=(8, 16),
        threads=("4x4", "8x8"),
        default=("128x128x16/8x8", "64x128x16/8x8"),
        together=whole_warps,
    ),
    launch=block_per_tile,
    reuse=rows_and_columns,
)
