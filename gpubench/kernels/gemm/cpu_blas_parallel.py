"""NumPy's BLAS on the number of threads with which it is fastest."""

from gpubench.kernels.gemm.cpu_blas import build
from gpubench.kernels.libraries import numpy_blas

VARIANT = numpy_blas(build, threads=0)
