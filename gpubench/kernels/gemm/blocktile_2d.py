from gpubench.kernels.block_tiles import at_most_1024_threads, blocks, variant

VARIANT = variant(
    idea="TM×TN elements per thread as outer products in registers, from shared memory",
    after="blocktile_1d",
    tiles=blocks(
        rows=(64, 128),
        columns=(64, 128),
        depths=(8, 16),
        threads=("4x4", "8x8"),
        default=("128x128x8/8x8", "64x64x8/4x4"),
        together=at_most_1024_threads,
    ),
)
