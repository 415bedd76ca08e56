from gpubench.kernels.tensor_cores import (
    BYTES_STEP,
    MAX_SUMS,
    consumers,
    refuse,
    stages_and_results_bytes,
    tiles,
    two_widths,
    variant,
)
from gpubench.model import Config, Problem


def refuse_bytes(tile: Config, problem: Problem) -> str | None:
    """Also refuse sums that leave no registers for the results of the previous tile."""
    sums = tile["BM"] * tile["BN"] // (128 * consumers(tile))
    words = sums + sums * problem.precision.result_bytes // 4
    if words > MAX_SUMS:
        return f"{words} sums and results a thread in {problem.dtype}, over {MAX_SUMS}"
    return refuse(tile, problem)


VARIANT = variant(
    idea="8 bits: twice the operations per byte; B along k; 32-bit results are stored late",
    after="wgmma_mixed",
    tiles=tiles(
        rows=(128, 256),
        columns=(128, 192, 256),
        step=BYTES_STEP,
        stages=(3, 4),
        cluster=("1x1", "1x2", "2x1"),
        group=(8, 16),
        default=("128x192x128/s4/cluster=2x1/group=8", "128x256x128/s4/cluster=2x1/group=8"),
        shared_bytes=stages_and_results_bytes,
    ),
    launches=two_widths,
    dtypes=("int8", "float8_e4m3"),
    refuse=refuse_bytes,
)
