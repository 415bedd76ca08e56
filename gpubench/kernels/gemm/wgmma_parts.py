from dataclasses import replace

from gpubench.kernels.fitted_tile import RESIDENT, box_of_b, why_not_shared
from gpubench.kernels.padded_rows import WORKSPACE
from gpubench.kernels.tensor_cores import (
    MAX_DYNAMIC_BYTES,
    PIECE_ROWS,
    ROW_BYTES,
    STEP,
    cluster,
    clusters,
    even_grid,
    row_major_map,
    stages_bytes,
    tiles,
    variant,
)
from gpubench.kernels.tile_costs import CLOCK_MHZ
from gpubench.model import Config, Launch, Problem

CHUNK, SPLITTING_THREADS = 8, 256
"""Elements that a thread splits, and threads of a splitting block, as in `bfloat16_parts.cuh`."""

PARTS = {"bf16x6": 3, "bf16x3": 2}
"""Parts of an operand, by precision."""

TILE_ARGUMENTS = "{BM}, {BN}, {BK}, {stages}, {cluster}, {group}"

TOGETHER, APART, APART_AND_OFTEN = range(3)
"""Which sums a tile has in the tensor core, as in `wgmma_parts.cu`."""

MAX_K = {APART_AND_OFTEN: 384, APART: 2048}
"""Maximum K of `bf16x6` for which it has these sums."""

MAX_ROWS = {TOGETHER: 208, APART: 144, APART_AND_OFTEN: 104}
"""Maximum number of rows of a tile for which no registers spill."""

ROWS, COLUMNS = range(8, max(MAX_ROWS.values()) + 1, 8), (64, 128)

PICKS = 4  # number of tiles that are picked for a problem

LAUNCH_US, END_US = 1.6, 1.84e-4
"""Microseconds of a launch beside splitting and steps, and of a tile's end for each of its
elements."""

SLOWDOWN = {64: 1.29, 128: 1.09}
"""Factor on the time of a step's multiplications, by columns of the tile."""

STEP_CLOCKS = {"bf16x3": 356, "bf16x6": 174}
"""Clocks of a step beside its multiplications. These constants were fitted to 172 products of 384
to 8192 on an H200, with 15 tiles each. The best of two picks takes 0.4 % longer than the best."""


def sums_of(problem: Problem) -> int:
    """Return which sums a tile has in the tensor core."""
    if problem.dtype == "bf16x3":
        return TOGETHER
    return next((sums for sums, most in MAX_K.items() if problem.k <= most), TOGETHER)


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Launch the splitting, then the product with the number of resident blocks."""
    m, n, k = problem.m, problem.n, problem.k
    parts = PARTS[problem.dtype]
    padded_k, padded_n = -(-k // STEP) * STEP, -(-n // CHUNK) * CHUNK
    bytes_of_a, bytes_of_b = (2 * parts * padded_k * extent for extent in (m, padded_n))
    blocks_of_a, blocks_of_b = (
        -(-padded_k * extent // (CHUNK * SPLITTING_THREADS)) for extent in (m, padded_n)
    )
    down, across = cluster(tile)
    blocks = down * across
    at_most = max(1, RESIDENT[blocks - 1] * multiprocessors // RESIDENT[0])
    a = row_major_map(WORKSPACE, (m, parts * padded_k), (tile["BM"] // across, STEP))
    b = row_major_map(WORKSPACE, (parts * padded_k, n), (box_of_b(tile["BN"], down), STEP))
    multiplying = Launch(
        kernel=f"wgmma_parts<{{scalar}}, {parts}, {sums_of(problem)}, {TILE_ARGUMENTS}>",
        grid=(blocks * even_grid(clusters(tile, problem), at_most),),
        block=(128 * (tile["BN"] // PIECE_ROWS + 1),),
        shared_bytes=stages_bytes(tile),
        tensor_maps=(
            replace(a, dtype="bfloat16"),
            replace(b, dtype="bfloat16", offset_bytes=bytes_of_a, pitch=padded_n),
        ),
        cluster=(blocks, 1, 1),
        workspace_bytes=bytes_of_a + bytes_of_b,
        takes_workspace=False,
        pdl=True,
    )
    return Launch(
        kernel=f"split_in_{parts}",
        grid=(blocks_of_a + blocks_of_b,),
        block=(SPLITTING_THREADS,),
        int_arguments=(blocks_of_a,),
        workspace_bytes=bytes_of_a + bytes_of_b,
        pdl=True,
        next_launches=(multiplying,),
    )


def predicted_us(size: tuple[int, int], problem: Problem, multiprocessors: int) -> float:
    """Return the time of a product with tiles of these extents, without the time to split."""
    rows, columns = size
    rounds = -(-(-(-problem.m // rows) * -(-problem.n // columns)) // multiprocessors)
    products = 3 * (PARTS[problem.dtype] - 1)
    clocks = rows * columns / 32 * products * SLOWDOWN[columns] + STEP_CLOCKS[problem.dtype]
    steps_us = -(-problem.k // STEP) * clocks / CLOCK_MHZ
    return LAUNCH_US + rounds * (steps_us + END_US * rows * columns)


def picks(problem: Problem, multiprocessors: int) -> tuple[str, ...]:
    """Return the tiles that the model predicts to be the fastest, and the first one in pairs."""
    smallest = {  # of tiles of which the same number covers C
        (-(-problem.m // rows), columns): (rows, columns)
        for rows in reversed(ROWS)
        if min(PIECE_ROWS, problem.m) <= rows <= MAX_ROWS[sums_of(problem)]
        for columns in COLUMNS
    }
    sizes = sorted(
        smallest.values(), key=lambda size: predicted_us(size, problem, multiprocessors)
    )[:PICKS]
    in_pairs = [size for size in sizes if size[0] % 16 == 0][:1]
    chosen = [(*size, "1x1") for size in sizes] + [(*size, "1x2") for size in in_pairs]
    return tuple(
        f"{bm}x{bn}x{STEP}/s{min(8, MAX_DYNAMIC_BYTES // ((bm + bn) * ROW_BYTES))}"
        f"/cluster={pair}/group=8"
        for bm, bn, pair in chosen
    )


def refuse(tile: Config, problem: Problem) -> str | None:
    """Refuse more sums than a thread has registers for. Rows have any length."""
    if tile["BM"] <= (most := MAX_ROWS[sums_of(problem)]):
        return None
    return f"{tile}: {problem.dtype} at K = {problem.k} has sums for at most {most} rows"


VARIANT = variant(
    idea="float32 on tensor cores: products of bfloat16 parts, whose sums leave them every step",
    after="wgmma_pingpong",
    dtypes=tuple(PARTS),
    tiles=tiles(
        rows=ROWS,
        columns=COLUMNS,
        stages=(3, 4, 5, 6, 7, 8),
        cluster=("1x1", "1x2", "2x1"),
        group=(4, 8, 16),
        default=(
            "64x128x64/s8/cluster=1x1/group=8",
            "128x128x64/s6/cluster=1x1/group=8",
            "192x128x64/s5/cluster=1x2/group=8",
        ),
        shared_bytes=stages_bytes,
        constraint=why_not_shared,
    ),
    launches=launches,
    refuse=refuse,
    auto_tiles=picks,
)
