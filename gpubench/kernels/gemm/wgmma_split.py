from gpubench.kernels.tensor_cores import (
    BYTES_STEP,
    MAX_SUMS,
    PIECE_ROWS,
    consumers,
    refuse,
    stages_and_results_bytes,
    tiles,
    variant,
)
from gpubench.model import Config, Problem


def refuse_split(tile: Config, problem: Problem) -> str | None:
    """Also refuse partial sums that do not fit, and two pieces that add less often."""
    pieces = tile["BM"] // (PIECE_ROWS * consumers(tile))
    if (sums := tile["BN"] // 2 * (pieces + 1)) > MAX_SUMS:
        return f"{sums} sums and partial sums a thread, over {MAX_SUMS}"
    if pieces > 1 and tile["promote"] > BYTES_STEP:
        return f"two pieces of 64 rows share partial sums: with promote={BYTES_STEP} only"
    return refuse(tile, problem)


VARIANT = variant(
    idea="float8 sums in two levels: after each PROMOTE values of k, partial sums go to float32",
    after="wgmma_bytes",
    tiles=tiles(
        rows=(128, 256),
        columns=(128, 192),
        step=BYTES_STEP,
        stages=(3, 4),
        cluster=("1x1", "1x2", "2x1"),
        group=(8, 16),
        promote=(128, 256, 512),
        default=(
            "256x128x128/s4/cluster=1x2/group=8/promote=128",
            "128x192x128/s4/cluster=2x1/group=8/promote=512",
        ),
        shared_bytes=stages_and_results_bytes,
    ),
    dtypes=("float8_e4m3_split",),
    refuse=refuse_split,
)
