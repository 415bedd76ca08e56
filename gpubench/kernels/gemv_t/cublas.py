from gpubench.kernels.libraries import cublas

VARIANT = cublas("gemv_t", "cuBLAS in the dtype's own precision")
