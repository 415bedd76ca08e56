"""NumPy's BLAS on all threads."""

from dataclasses import replace

from gpubench.kernels.atax import cpu_blas

VARIANT = replace(
    cpu_blas.VARIANT,
    idea="NumPy's BLAS, all threads, two calls",
    threads=0,
    baseline="cpu_blas_parallel",
)
