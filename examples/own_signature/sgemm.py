from gpubench.model import CudaVariant, Launch, Space

STEPS = ("sgemm_naive", "sgemm_coalesced", "sgemm_shared")
VARIANT = CudaVariant(idea="three SGEMM kernels as they are, with a signature of their own",
    kernel="{kernel}<{edge}>", dtypes=("float32",), reads_output=True,
    signature="int M, int N, int K, float alpha=1, const float *A, const float *B, float beta=0, float *C",
    tiles=Space(axes={"edge": (8, 16, 32), "kernel": STEPS}, block=("edge",),
                default=tuple(f"32/kernel={step}" for step in STEPS)),
    launch=lambda tile, problem: Launch(block=(tile["edge"] ** 2,),
        grid=(-(-problem.n // tile["edge"]), -(-problem.m // tile["edge"]))))
