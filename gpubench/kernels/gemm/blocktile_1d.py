from gpubench.kernels.block_tiles import at_most_1024_threads, blocks, variant

VARIANT = variant(
    idea="TM elements of a column per thread: one read of B serves TM multiply-adds",
    after="shared_tile",
    tiles=blocks(
        rows=(64, 128),
        columns=(32, 64),
        depths=(8, 16),
        threads=("8x1", "16x1"),
        default=("64x64x8/8x1", "128x64x16/16x1"),
        together=at_most_1024_threads,
    ),
)
