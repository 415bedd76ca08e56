"""What the descriptors of the kernels on tensor cores share: tiles, roles, tensor maps, grids.

The numbers are those of `tensor_cores.cuh`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from gpubench.kernels.block_tiles import rows_and_columns, tiles_of_c
from gpubench.model import (
    Config,
    CudaVariant,
    Gpu,
    Launch,
    Problem,
    Space,
    TensorMap,
)

DTYPES = ("bfloat16", "float16")

ROW_BYTES = 128
"""A row of a tile in shared memory: elements of A along k, or columns of B."""

STEP, BYTES_STEP = 64, 128
"""Elements of 16 bits in such a row, and so BK; and of 8."""

PIECE_ROWS, NARROW = 64, 128
"""Rows that a warpgroup multiplies at once, and columns of a narrow tile."""

FEWER_WIDE = 256
"""So many wide tiles in a row of tiles fewer than there is room for are tried."""

ALIGNED_BYTES = 16
"""What the bytes of a matrix's row must be a multiple of for the TMA."""

MAX_DYNAMIC_BYTES = 226 * 1024
"""Dynamic shared memory beside the barriers, which take 1 KiB with alignment."""

RESULT_BYTES = 2 * 64 * ROW_BYTES
"""Two buffers for results, of each warpgroup that multiplies."""

MAX_SUMS = 192
"""Of a thread: more do not fit beside addresses into 240 registers."""

MULTIPROCESSORS = 132
"""Of H100 and H200 with SXM sockets, where no GPU is given."""

A, B, C = range(3)
"""Positions among the kernel's arrays."""


def consumers(tile: Config) -> int:
    """Warpgroups that multiply; one more fetches."""
    return 1 if tile["BM"] == PIECE_ROWS else 2


def threads(tile: Config) -> int:
    """Threads of a block: 128 in each warpgroup."""
    return 128 * (consumers(tile) + 1)


def cluster(tile: Config) -> tuple[int, int]:
    """Rows and columns of the blocks in a cluster."""
    rows, columns = str(tile.get("cluster", "1x1")).split("x")
    return int(rows), int(columns)


def stages_bytes(tile: Config, item_bytes: int = 2) -> int:
    """Shared memory of the stages."""
    bm, bn, bk = tile.numbers("BM", "BN", "BK")
    return int(tile.get("stages", 1)) * (bm + bn) * bk * item_bytes


def stages_and_results_bytes(tile: Config) -> int:
    """The same, where BK makes a row, and the buffers through which results leave."""
    return stages_bytes(tile, ROW_BYTES // tile["BK"]) + consumers(tile) * RESULT_BYTES


def operand_maps(tile: Config, problem: Problem) -> tuple[TensorMap, ...]:
    """Of A, the rows that one block sends; of B, as many columns as make a row.

    Or, where B lies along k, 64 columns, or 32 as `fetch_step` says.
    """
    m, n, k = problem.m, problem.n, problem.k
    rows, columns = cluster(tile)
    width = ROW_BYTES // problem.precision.item_bytes
    a = row_major_map(A, (m, k), (tile["BM"] // columns, width))
    if "B" in problem.column_major:
        return a, row_major_map(B, (n, k), (32 if tile["BN"] // 64 % rows else 64, width))
    return a, row_major_map(B, (k, n), (tile["BK"], width))


def maps(tile: Config, problem: Problem) -> tuple[TensorMap, ...]:
    """Of the operands and of C, which leaves by boxes of 64 rows and 128 bytes."""
    box = (PIECE_ROWS, ROW_BYTES // problem.precision.result_bytes)
    return (*operand_maps(tile, problem), row_major_map(C, (problem.m, problem.n), box))


def row_major_map(array: int, shape: tuple[int, int], box: tuple[int, int]) -> TensorMap:
    """Return the map of a matrix whose boxes have rows of 128 bytes, swizzled."""
    return TensorMap(
        array=array, shape=shape, box=box, swizzle_bytes=ROW_BYTES, l2_promotion_bytes=0
    )


def refuse(_tile: Config, problem: Problem) -> str | None:
    """Rows must be multiples of 16 bytes for the TMA: those of C, of A, and of B either way."""
    n = ALIGNED_BYTES // problem.precision.result_bytes
    k = ALIGNED_BYTES // problem.precision.item_bytes
    if problem.n % n or problem.k % k:
        both = f"N and K divisible by {n}" if n == k else f"N divisible by {n} and K by {k}"
        return f"the TMA takes {both}, not {problem.n} and {problem.k}"
    return None


def clusters(tile: Config, problem: Problem) -> int:
    """Clusters' worth of tiles that cover C."""
    rows, columns = cluster(tile)
    whole = {"BM": tile["BM"] * rows, "BN": tile["BN"] * columns}
    return tiles_of_c(Config(whole.items(), ("BM", "BN")), problem)


def even_grid(tiles: int, at_most: int) -> int:
    """The fewest workers that need no more rounds than `at_most` do: 64 of 66 for 256 tiles.

    More would end no earlier, and those that work in the last round alone keep the others from
    running in step: 0.5 to 1.6 % on an H200.
    """
    rounds = -(-tiles // at_most)
    return -(-tiles // rounds)


def persistent(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """One block a multiprocessor at the most, in whole clusters."""
    rows, columns = cluster(tile)
    blocks = rows * columns
    grid = blocks * even_grid(clusters(tile, problem), multiprocessors // blocks)
    return Launch(
        grid=(grid,),
        block=(threads(tile),),
        shared_bytes=stages_and_results_bytes(tile),
        tensor_maps=maps(tile, problem),
        cluster=(blocks, 1, 1),
        pdl=bool(tile.get("pdl", 0)),
    )


def from_registers(
    threads: Callable[[Config], int],
) -> Callable[[Config, Problem, int], Launch]:
    """The same with so many threads and results stored from registers: all memory for stages."""

    def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
        return replace(
            persistent(tile, problem, multiprocessors),
            block=(threads(tile),),
            shared_bytes=stages_bytes(tile, problem.precision.item_bytes),
            tensor_maps=operand_maps(tile, problem),
        )

    return launches


def stages_that_fit(item_bytes: int) -> Callable[[Config], str | None]:
    """Why a tile's stages are more than shared memory, or None."""

    def together(tile: Config) -> str | None:
        if (needed := stages_bytes(tile, item_bytes)) > MAX_DYNAMIC_BYTES:
            return f"{tile}: {needed} bytes of shared memory, over {MAX_DYNAMIC_BYTES}"
        return None

    return together


def two_widths(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """As many columns in wide tiles as make the last block end first.

    All of them where narrow ones divide a wide one.
    """
    rows, columns = cluster(tile)
    blocks = rows * columns
    launch = persistent(tile, problem, multiprocessors)
    if tile["BN"] % NARROW == 0:
        return replace(launch, int_arguments=(-(-problem.n // (tile["BN"] * columns)),))
    wide, workers = split(
        down=-(-problem.m // (tile["BM"] * rows)),
        columns=problem.n,
        wide_columns=tile["BN"] * columns,
        narrow_columns=NARROW * columns,
        at_most=multiprocessors // blocks,
    )
    return replace(launch, grid=(blocks * workers,), int_arguments=(wide,))


@cache
def split(
    *, down: int, columns: int, wide_columns: int, narrow_columns: int, at_most: int
) -> tuple[int, int]:
    """Wide tiles in a row of tiles, and the workers to take all tiles in turns.

    The longest of the workers decides; then fewer narrow tiles, as they take more bytes for each
    operation; then fewer workers, as in `even_grid`.
    """

    def narrow(wide: int) -> int:
        return -(-max(columns - wide * wide_columns, 0) // narrow_columns)

    def longest(wide: int, workers: int) -> int:
        of_wide, of_all = down * wide, down * (wide + narrow(wide))

        def columns_of(first: int) -> int:
            """Of the worker that takes this tile first, and then every `workers`-th."""
            own_wide = max(0, -(-(of_wide - first) // workers))
            own = -(-(of_all - first) // workers)
            return wide_columns * own_wide + narrow_columns * (own - own_wide)

        return max(map(columns_of, range(min(workers, of_all))))

    most = -(-columns // wide_columns)
    wide = min(
        range(max(0, most - FEWER_WIDE), most + 1),
        key=lambda wide: (longest(wide, at_most), narrow(wide)),
    )
    best = longest(wide, at_most)
    return wide, next(n for n in range(1, at_most + 1) if longest(wide, n) == best)


def sums_that_fit(tile: Config) -> str | None:
    """Return why a thread cannot have its sums of a tile, or None."""
    bm, bn = tile.numbers("BM", "BN")
    if (sums := bm * bn // (128 * consumers(tile))) > MAX_SUMS:
        return f"{tile}: {sums} sums a thread, over {MAX_SUMS}"
    return None


def tiles(
    *,
    rows: Sequence[int],
    columns: Sequence[int],
    default: tuple[str, ...],
    shared_bytes: Callable[[Config], int],
    step: int = STEP,
    constraint: Callable[[Config], str | None] = sums_that_fit,
    **further: Sequence[int | str],
) -> Space:
    """Tiles of BM×BN×`step` such as `128x256x64/s4/cluster=2x1`, with further axes in order.

    `constraint` returns why a block cannot have a tile of this size, or None.
    """

    def together(tile: Config) -> str | None:
        if reason := constraint(tile):
            return reason
        if (needed := shared_bytes(tile)) > MAX_DYNAMIC_BYTES:
            return f"{tile}: {needed} bytes of shared memory, over {MAX_DYNAMIC_BYTES}"
        if tile.get("prefetch", 0) and not tile["pdl"]:
            return f"{tile}: prefetches while it waits for the previous launch, with pdl=1"
        return None

    return Space(
        axes={"BM": rows, "BN": columns, "BK": (step,), **further},
        block=("BM", "BN", "BK"),
        default=default,
        constraint=together,
    )


def variant(
    *,
    idea: str,
    after: str,
    tiles: Space,
    launches: Callable[[Config, Problem, int], Launch] = persistent,
    dtypes: tuple[str, ...] = DTYPES,
    refuse: Callable[[Config, Problem], str | None] = refuse,
    auto_tiles: Callable[[Problem, int], tuple[str, ...]] | None = None,
) -> CudaVariant:
    """A kernel for Hopper. `launches` takes the number of multiprocessors last."""

    def launch(tile: Config, problem: Problem) -> Launch:
        return launches(tile, problem, MULTIPROCESSORS)

    def specialize(_: Launch, tile: Config, problem: Problem, gpu: Gpu) -> Launch:
        return launches(tile, problem, gpu.multiprocessors)

    return CudaVariant(
        idea=idea,
        after=after,
        dtypes=dtypes,
        capability=(9, 0),
        architecture_suffix="a",
        tiles=tiles,
        launch=launch,
        specialize=specialize,
        refuse=refuse,
        auto_tiles=auto_tiles,
        reuse=rows_and_columns,
    )
