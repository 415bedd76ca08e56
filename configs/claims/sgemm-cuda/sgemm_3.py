"""Kernel 3 of SGEMM_CUDA: SMEM Caching."""

from gpubench.model import HostVariant

VARIANT = HostVariant(
    idea="kernel 3 of SGEMM_CUDA",
    file="checkout/src/runner.cu",
    entry="run_sgemm_shared_mem_block",
    signature="int M, int N, int K, float alpha=1, float* A, float* B, float beta=0, float* C",
    dtypes=("float32",),
    reads_output=True,  # it reads C even where beta is 0: C holds zeros
)
