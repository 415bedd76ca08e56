from gpubench.kernels.libraries import cublas

VARIANT = cublas("atax", "cuBLAS in the dtype's own precision, two calls")
