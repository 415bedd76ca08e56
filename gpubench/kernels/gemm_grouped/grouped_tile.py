from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="batched_tile, with tiles of groups of any number of rows",
    kernel="grouped_tile<{scalar}, {edge}>",
    dtypes=("float32", "float64", "float16", "bfloat16"),
    tiles=edges(
        1, 32, because="TILE×TILE threads, and a block holds at most 1024", default=(16, 32)
    ),
    grid=("N/edge", "GROUPS*M/edge+GROUPS"),
    block=("edge", "edge"),
    reuse=lambda tile: (tile["edge"], tile["edge"]),
    baseline="cublas",
)
