"""Kernels 1 to 11 of SGEMM_CUDA: the tile is the number of the kernel."""

from gpubench.model import HostVariant, Space

VARIANT = HostVariant(
    idea="kernels 1 to 11 of SGEMM_CUDA, by number",
    file="sgemm_cuda.cu",
    entry="call<{kernel}>",
    signature="int M, int N, int K, float* A, float* B, float* C",
    dtypes=("float32",),
    tiles=Space(
        axes={"kernel": range(1, 12)}, block=("kernel",), default=tuple(map(str, range(1, 12)))
    ),
    reads_output=True,  # they read C even where beta is 0: C holds zeros
)
