from gpubench.kernels.tensor_cores import stages_and_results_bytes, tiles, two_widths, variant

VARIANT = variant(
    idea="256×192 per block fetch fewer bytes; narrower last columns let all blocks end together",
    after="wgmma_deferred",
    tiles=tiles(
        rows=(256,),
        columns=(192,),
        stages=(2, 3),
        cluster=("1x1", "1x2"),
        group=(8, 16),
        default=("256x192x64/s3/cluster=1x2/group=16", "256x192x64/s3/cluster=1x2/group=8"),
        shared_bytes=stages_and_results_bytes,
    ),
    launches=two_widths,
)
