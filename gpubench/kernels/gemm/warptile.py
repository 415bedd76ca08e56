from gpubench.kernels.block_tiles import blocks, variant, whole_warps

VARIANT = variant(
    idea="a warp computes a 4·TM × 8·TN rectangle and reads shared memory without conflicts",
    after="vectorized",
    tiles=blocks(
        rows=(64, 128),
        columns=(64, 128),
        depths=(8, 16),
        threads=("4x4", "8x8"),
        default=("128x128x16/8x8", "64x128x16/8x8"),
        together=whole_warps,
    ),
)
