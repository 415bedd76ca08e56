from gpubench.kernels.tensor_cores import (
    BYTES_STEP,
    stages_and_results_bytes,
    tiles,
    two_widths,
    variant,
)

VARIANT = variant(
    idea="the tiles of two widths and the turns of wgmma_mixed, in 8 bits",
    after="wgmma_bytes",
    tiles=tiles(
        rows=(256,),
        columns=(192,),
        step=BYTES_STEP,
        stages=(2, 3),
        cluster=("1x1", "1x2"),
        group=(8, 16),
        default=("256x192x128/s3/cluster=1x2/group=16", "256x192x128/s3/cluster=1x2/group=8"),
        shared_bytes=stages_and_results_bytes,
    ),
    launches=two_widths,
    dtypes=("int8", "float8_e4m3"),
)
