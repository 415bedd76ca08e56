from gpubench.kernels.fitted_tile import BYTES_TURNS, turns, turns_bytes, why_not_in_turns
from gpubench.kernels.tensor_cores import refuse, variant
from gpubench.kernels.tile_costs import Picks
from gpubench.model import Config, Problem


def refuse_rows(tile: Config, problem: Problem) -> str | None:
    """Also refuse a tile of which half, a box of ints, is no multiple of the swizzle's 8 rows."""
    if tile["BM"] % (multiple := 4 * problem.precision.result_bytes):
        return f"{tile}: rows are no multiple of {multiple}, which {problem.dtype} needs"
    return refuse(tile, problem)


VARIANT = variant(
    idea="8 bits, two warpgroups with tiles of their own: one stores while the other multiplies",
    after="wgmma_bytes_cluster",
    dtypes=BYTES_TURNS.dtypes,
    tiles=BYTES_TURNS.tiles(
        group=(8, 16),
        default=(
            "128x128x128/s6/cluster=2x1/group=8",
            "96x64x128/s8/cluster=2x4/group=8",
        ),
        shared_bytes=turns_bytes,
        constraint=why_not_in_turns,
    ),
    launches=turns,
    refuse=refuse_rows,
    auto_tiles=Picks(BYTES_TURNS),
)
