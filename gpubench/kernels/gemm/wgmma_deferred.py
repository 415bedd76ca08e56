from gpubench.kernels.tensor_cores import stages_and_results_bytes, tiles, variant

VARIANT = variant(
    idea="a tile's results wait in registers and are stored while the next tile is multiplied",
    after="wgmma_cluster",
    tiles=tiles(
        rows=(128, 256),
        columns=(128, 256),
        stages=(2, 3, 4, 6),
        cluster=("1x1", "1x2", "2x1"),
        group=(8, 16),
        default=("128x256x64/s4/cluster=2x1/group=8",),
        shared_bytes=stages_and_results_bytes,
    ),
)
