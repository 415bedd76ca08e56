from gpubench.kernels.libraries import numpy_blas

VARIANT = numpy_blas("atax", threads=0)
