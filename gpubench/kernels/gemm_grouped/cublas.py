from gpubench.kernels.libraries import cublas

VARIANT = cublas(
    "gemm_grouped",
    "cublasGemmEx for each group with rows, whose offsets the host has read before",
    dtypes=("float32", "float64", "tf32", "float16", "bfloat16"),
)
