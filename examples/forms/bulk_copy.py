from gpubench.model import CudaVariant

VARIANT = CudaVariant(
    idea="tiles arrive by bulk copies of cuda::ptx",
    kernel="bulk_copy",
    signature=(
        "int64_t M, int64_t N, int64_t K, const nv_bfloat16* A, const nv_bfloat16* B, nv_bfloat16* C"
    ),
    dtypes=("bfloat16",),
    grid=("N/64", "M/16"),
    block=(64, 16),
    capability=(9, 0),
    refuse=lambda _, problem: (
        "it takes M that 16 divides, and N and K that 64 divides"
        if problem.m % 16 or problem.n % 64 or problem.k % 64
        else None
    ),
)
