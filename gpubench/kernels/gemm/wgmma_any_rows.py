from dataclasses import replace

from gpubench.kernels.fitted_tile import ANY_ROWS, launches, why_not
from gpubench.kernels.gemm.wgmma_bytes_cluster import shared_bytes
from gpubench.kernels.padded_rows import on_padded_rows, row_bytes
from gpubench.kernels.tensor_cores import ALIGNED_BYTES, variant
from gpubench.kernels.tile_costs import Picks
from gpubench.model import Config, Launch, Problem


def refuse(_tile: Config, problem: Problem) -> str | None:
    """Refuse rows that the TMA takes as they are."""
    if not any(row_bytes(problem)):
        return f"rows are multiples of {ALIGNED_BYTES} bytes, which other kernels take uncopied"
    return None


def copy_and_multiply(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Launch the copies, then one block per tile and part of K."""
    product = launches(tile, problem, multiprocessors)
    return on_padded_rows(replace(product, shared_bytes=shared_bytes(tile)), problem)


VARIANT = variant(
    idea="rows of any length: one launch copies them into rows that the TMA takes",
    after="wgmma_split_cluster",
    tiles=ANY_ROWS.tiles(
        group=(8, 16),
        pdl=(0, 1),
        default=(
            "64x128x64/s8/k1/cluster=1x1/group=8/pdl=1",
            "128x128x64/s7/k1/cluster=1x1/group=8/pdl=1",
            "128x128x64/s7/k2/cluster=1x1/group=8/pdl=1",
            "128x256x64/s4/k1/cluster=2x1/group=8/pdl=1",
        ),
        shared_bytes=shared_bytes,
        constraint=why_not,
    ),
    launches=copy_and_multiply,
    auto_tiles=Picks(ANY_ROWS),
    refuse=refuse,
)
