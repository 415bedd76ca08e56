from gpubench.kernels.libraries import numpy_blas

VARIANT = numpy_blas("gemm_batched", threads=0)
