from gpubench.model import CudaVariant

VARIANT = CudaVariant(
    idea="a warp multiplies tiles of 16x16 halves by wmma",
    kernel="wmma_tile",
    signature=(
        "size_t m, size_t n, size_t k, const half* A, size_t lda, const half* B, size_t ldb, "
        "const half* bias=null, half* C, size_t ldc"
    ),
    dtypes=("float16",),
    grid=("N/16", "M/16"),
    block=32,
    refuse=lambda _, problem: (
        "wmma takes extents that 16 divides"
        if problem.m % 16 or problem.n % 16 or problem.k % 16
        else None
    ),
)
