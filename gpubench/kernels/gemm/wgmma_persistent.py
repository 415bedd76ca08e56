from gpubench.kernels.tensor_cores import stages_and_results_bytes, tiles, variant

VARIANT = variant(
    idea="blocks stay and fetch the next tile early; stmatrix and the TMA store results",
    after="wgmma_ring",
    tiles=tiles(
        rows=(64, 128, 256),
        columns=(128, 256),
        stages=(2, 3, 4, 8),
        pdl=(0, 1),
        default=(
            "128x256x64/s4/pdl=0",
            "128x256x64/s4/pdl=1",
            "64x128x64/s8/pdl=0",
            "64x128x64/s8/pdl=1",
        ),
        shared_bytes=stages_and_results_bytes,
    ),
)
