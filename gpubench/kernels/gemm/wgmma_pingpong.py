"""Two warpgroups with tiles of their own take turns; their blocks stay, in clusters of up to 8."""

from gpubench.kernels.fitted_tile import (
    CLUSTERS,
    MAX_SUMS_OF_TURNS,
    RESIDENT,
    ROWS_BY_8,
    box_of_b,
    why_not_shared,
)
from gpubench.kernels.tensor_cores import (
    ROW_BYTES,
    STEP,
    A,
    B,
    C,
    cluster,
    clusters,
    even_grid,
    row_major_map,
    tiles,
    variant,
)
from gpubench.kernels.tile_costs import picks
from gpubench.model import Config, Launch, Problem


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, and of a box of results of each warpgroup."""
    rows, columns, stages = tile.numbers("BM", "BN", "stages")
    return int((stages * (rows + columns) + 2 * rows) * ROW_BYTES)


def why_not(tile: Config) -> str | None:
    """Return why a warpgroup cannot have a tile of this size, or share it like this, or None."""
    if (needed := tile["BM"] * tile["BN"] // 128) > MAX_SUMS_OF_TURNS:
        return f"{tile}: {needed} sums a thread, over {MAX_SUMS_OF_TURNS}"
    return why_not_shared(tile)


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Return a launch of as many blocks as are resident at once, or fewer if they come out even."""
    m, n, k = problem.m, problem.n, problem.k
    rows, columns = cluster(tile)
    blocks = rows * columns
    at_most = max(1, RESIDENT[blocks - 1] * multiprocessors // RESIDENT[0])
    return Launch(
        grid=(blocks * even_grid(clusters(tile, problem), at_most),),
        block=(3 * 128,),
        shared_bytes=shared_bytes(tile),
        tensor_maps=(
            row_major_map(A, (m, k), (tile["BM"] // columns, STEP)),
            row_major_map(B, (k, n), (box_of_b(tile["BN"], rows), STEP)),
            row_major_map(C, (m, n), (tile["BM"], STEP)),
        ),
        cluster=(blocks, 1, 1),
    )


VARIANT = variant(
    idea="two warpgroups with tiles of their own: one stores results while the other multiplies",
    after="wgmma_fitted",
    tiles=tiles(
        rows=ROWS_BY_8,
        columns=(64, 128, 192, 256),
        stages=(3, 4, 5, 6, 7, 8),
        cluster=tuple(f"{down}x{across}" for down, across in CLUSTERS),
        group=(8, 16),
        default=(
            "104x192x64/s5/cluster=2x1/group=8",
            "128x128x64/s6/cluster=4x1/group=8",
            "96x192x64/s5/cluster=4x1/group=8",
        ),
        shared_bytes=shared_bytes,
        constraint=why_not,
    ),
    launches=launches,
    auto_tiles=picks("wgmma_pingpong"),
)
