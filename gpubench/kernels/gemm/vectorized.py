from gpubench.kernels.block_tiles import at_most_1024_threads, blocks, variant

VARIANT = variant(
    idea="128 bits per instruction; A transposed and padded in shared memory",
    after="blocktile_2d",
    tiles=blocks(
        rows=(64, 128),
        columns=(64, 128),
        depths=(8, 16),
        threads=("4x4", "8x8"),
        default=("128x128x8/8x8",),
        together=at_most_1024_threads,
    ),
)
