from dataclasses import replace

from gpubench.kernels.gemm_scaled import cublaslt

VARIANT = replace(
    cublaslt.VARIANT,
    idea="cuBLASLt's block scaling (12.9 and newer), and the first algorithm of its heuristic",
    tune=None,
    tunes="",
)
