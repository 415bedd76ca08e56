from gpubench.kernels.gemm.cpu_blas import build
from gpubench.kernels.libraries import numpy_blas
from gpubench.model import LAYOUTS

VARIANT = numpy_blas(build, threads=0, layouts=tuple(LAYOUTS))
