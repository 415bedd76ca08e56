from gpubench.kernels.libraries import numpy_blas

VARIANT = numpy_blas("gemm", threads=0)
