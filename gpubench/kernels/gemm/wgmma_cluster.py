from gpubench.kernels.tensor_cores import stages_and_results_bytes, tiles, variant

VARIANT = variant(
    idea="two blocks share the tiles they fetch (multicast), in an order that suits the cache",
    after="wgmma_persistent",
    tiles=tiles(
        rows=(64, 128, 256),
        columns=(128, 256),
        stages=(2, 3, 4, 8),
        cluster=("1x1", "1x2", "2x1"),
        group=(4, 8, 16, 32),
        pdl=(0, 1),
        prefetch=(0, 1),
        default=(
            "128x256x64/s4/cluster=2x1/group=8/pdl=0/prefetch=0",
            "128x256x64/s4/cluster=1x2/group=16/pdl=0/prefetch=0",
            "128x256x64/s4/cluster=1x2/group=16/pdl=1/prefetch=0",
            "64x128x64/s8/cluster=1x2/group=16/pdl=0/prefetch=0",
            "64x128x64/s8/cluster=1x2/group=16/pdl=1/prefetch=1",
        ),
        shared_bytes=stages_and_results_bytes,
    ),
)
