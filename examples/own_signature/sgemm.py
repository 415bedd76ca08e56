from gpubench.model import CudaVariant, Space

STEPS = ("sgemm_naive", "sgemm_coalesced", "sgemm_shared")
VARIANT = CudaVariant(idea="three unchanged SGEMM kernels with their own signature",
    kernel="{kernel}<{edge}>", dtypes=("float32",), reads_output=True,
    signature="int M, int N, int K, float alpha=1, const float *A, const float *B, float beta=0, float *C",
    tiles=Space(axes={"edge": (8, 16, 32), "kernel": STEPS}, block=("edge",),
                default=tuple(f"32/kernel={step}" for step in STEPS)),
    grid=("N/edge", "M/edge"), block="edge*edge")
