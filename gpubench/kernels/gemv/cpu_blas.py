from gpubench.kernels.libraries import numpy_blas

VARIANT = numpy_blas("gemv", threads=1)
