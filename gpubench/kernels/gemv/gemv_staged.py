from gpubench.kernels.vectors import STAGED_TILES, on_staged_blocks, variant

VARIANT = variant(
    idea="published: x in shared memory part by part, a tree for each row",
    tiles=STAGED_TILES,
    grid="M",
    specialize=on_staged_blocks,
)
