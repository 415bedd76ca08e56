from gpubench.kernels.libraries import numpy_blas

VARIANT = numpy_blas("gemv_t", threads=0)
