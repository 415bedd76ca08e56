from gpubench.kernels.gemv.cpu_blas import build
from gpubench.kernels.libraries import numpy_blas

VARIANT = numpy_blas(build, threads=0)
