from gpubench.kernels.libraries import cublas

VARIANT = cublas("gemv", "cuBLAS in the dtype's own precision")
