from functools import partial

from gpubench.kernels.tensor_cores import from_registers, stages_bytes, tiles, variant

THREADS = 384
"""Threads of a block: eight warps that multiply, and a warpgroup that fetches."""

VARIANT = variant(
    idea="float64 on tensor cores: operands change places, and each load fills a pair of registers",
    after="mma_sync",
    dtypes=("float64",),
    tiles=tiles(
        rows=(64, 128),
        columns=(128,),
        step=32,
        stages=(3, 4),
        cluster=("1x1", "1x2", "2x1"),
        group=(6, 12),
        pdl=(0, 1),
        default=(
            "128x128x32/s3/cluster=2x1/group=6/pdl=0",
            "64x128x32/s4/cluster=1x1/group=12/pdl=0",
            "64x128x32/s4/cluster=1x1/group=12/pdl=1",
        ),
        shared_bytes=partial(stages_bytes, item_bytes=8),
    ),
    launches=from_registers(lambda _tile: THREADS),
)
