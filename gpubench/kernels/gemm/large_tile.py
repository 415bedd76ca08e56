from gpubench.kernels.block_tiles import (
    blocks,
    padded_stages_bytes,
    rasterized,
    variant,
    warps_that_fit,
)

VARIANT = variant(
    idea="16×8 per thread, 128×256 per block: more multiply-adds for each load, in fewer warps",
    after="pipelined",
    dtypes=("float32", "int32"),
    tiles=blocks(
        rows=(128,),
        columns=(128, 256),
        depths=(8, 16),
        threads=("16x8",),
        stages=(3,),
        default=("128x256x16/16x8/s3",),
        together=warps_that_fit(padded_stages_bytes),
    ),
    launch=rasterized,
)
