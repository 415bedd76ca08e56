from dataclasses import replace

from gpubench.kernels.gemm_grouped import cpu_blas

VARIANT = replace(
    cpu_blas.VARIANT,
    idea="NumPy's BLAS, the fastest number of threads, a call for each group",
    threads=0,
    baseline="cpu_blas_parallel",
)
