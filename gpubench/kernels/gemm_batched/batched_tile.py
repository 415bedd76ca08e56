from gpubench.model import CudaVariant, edges

VARIANT = CudaVariant(
    idea="shared_tile of gemm, with a layer of the grid for each product",
    kernel="batched_tile<{scalar}, {edge}>",
    dtypes=("float32", "float64", "float16", "bfloat16"),
    tiles=edges(
        1, 32, because="TILE×TILE threads, and a block holds at most 1024", default=(16, 32)
    ),
    grid=("N/edge", "M/edge", "BATCH"),
    block=("edge", "edge"),
    reuse=lambda tile: (tile["edge"], tile["edge"]),
    baseline="cublas",
)
