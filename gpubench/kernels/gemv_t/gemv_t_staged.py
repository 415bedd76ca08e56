from gpubench.kernels.vectors import STAGED_TILES, on_staged_blocks, variant

VARIANT = variant(
    idea="published: gemv_staged on columns, whose elements lie N apart",
    tiles=STAGED_TILES,
    grid="N",
    specialize=on_staged_blocks,
)
