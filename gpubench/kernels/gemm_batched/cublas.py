from gpubench.kernels.libraries import cublas

VARIANT = cublas(
    "gemm_batched",
    "cublasGemmStridedBatchedEx in the dtype's own precision (float32 without TF32)",
    dtypes=("float32", "float64", "tf32", "float16", "bfloat16"),
)
