from gpubench.kernels.libraries import cublas

VARIANT = cublas(
    "gemm",
    "cuBLAS in the dtype's own precision (float32 without TF32; float8 by cuBLASLt's first choice)",
    dtypes=(
        *("float32", "float64", "tf32", "bf16x3", "bf16x6", "float16", "float16_sum16", "bfloat16"),
        *("int8", "float8_e4m3", "float8_e4m3_split"),
    ),
)
