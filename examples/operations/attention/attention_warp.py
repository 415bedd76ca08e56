from gpubench.model import Config, CudaVariant, Problem

MAX_D = 256  # maximum length of a row, as in attention_warp.cu


def refuse(_tile: Config | None, problem: Problem) -> str | None:
    """Return why a problem is refused: its rows do not fit into the registers of a warp."""
    d = problem.operation.named(problem.numbers)["D"]
    return f"D is at most {MAX_D}, not {d}" if d > MAX_D else None


VARIANT = CudaVariant(
    idea="a warp computes a row",
    dtypes=("float32",),
    kernel="attention_warp<{scalar}>",
    signature="const Scalar* Q, const Scalar* K, const Scalar* V, Scalar* O, int S, int D",
    grid=("S/8",),
    block=(32, 8),
    baseline="attention_torch",
    refuse=refuse,
)
