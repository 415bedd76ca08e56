"""Tiles, warpgroups, tensor maps and grids of the kernels on tensor cores.

The constants must equal the constants of `tensor_cores.cuh`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from gpubench.kernels.block_tiles import rows_and_columns, tiles_of_c
from gpubench.model import Config, CudaVariant, Gpu, Launch, Problem, Space, TensorMap
from gpubench.model.variant import PORTABLE_CLUSTER

DTYPES = ("bfloat16", "float16")

ROW_BYTES = 128  # bytes of a row in shared memory: of A along k, or of B along k or n
STEP, BYTES_STEP = 64, 128  # BK for elements of 16 bits and of 8 bits, so that a row has ROW_BYTES
PIECE_ROWS, NARROW = 64, 128  # rows that a warpgroup multiplies at once; columns of a narrow tile

FEWER_WIDE = 256
"""Maximum number of wide tiles per row that may be dropped while searching for an even split."""

ALIGNED_BYTES = 16  # the TMA takes rows whose bytes are a multiple of this

MAX_DYNAMIC_BYTES = 226 * 1024
"""Maximum bytes of dynamic shared memory. The barriers and the alignment take 1 KiB more."""

STATIC_BYTES = 2 * 1024
"""Bytes of shared memory that a block takes besides its dynamic shared memory: for the barriers,
and 1 KiB that CUDA reserves."""

RESULT_BYTES = 2 * 64 * ROW_BYTES
"""Bytes of the two result buffers of each warpgroup that multiplies."""

MAX_SUMS = 192
"""Maximum number of sums of a thread. More sums do not fit into 240 registers beside addresses."""

MULTIPROCESSORS = 132  # multiprocessors of H100 and H200 with SXM sockets, if no GPU is given
A, B, C = range(3)  # indices of the kernel's arrays


def consumers(tile: Config) -> int:
    """Return the number of warpgroups that multiply. One more warpgroup fetches operands."""
    return 1 if tile["BM"] == PIECE_ROWS else 2


def threads(tile: Config) -> int:
    """Return the number of threads of a block, with 128 in each warpgroup."""
    return 128 * (consumers(tile) + 1)


def cluster(tile: Config) -> tuple[int, int]:
    """Return how many rows of blocks and how many columns of blocks a cluster has."""
    rows, columns = str(tile.get("cluster", "1x1")).split("x")
    return int(rows), int(columns)


def stages_bytes(tile: Config, item_bytes: int = 2) -> int:
    """Return the bytes of shared memory that the stages take."""
    bm, bn, bk = tile.numbers("BM", "BN", "BK")
    return int(tile.get("stages", 1)) * (bm + bn) * bk * item_bytes


def stages_and_results_bytes(tile: Config) -> int:
    """Return the bytes of shared memory that the stages and the result buffers take.

    A row of a stage has `ROW_BYTES` bytes, that is, BK elements.
    """
    return stages_bytes(tile, ROW_BYTES // tile["BK"]) + consumers(tile) * RESULT_BYTES


def operand_maps(tile: Config, problem: Problem) -> tuple[TensorMap, ...]:
    """Return the tensor maps of A and B.

    A box of A has the rows that one block sends. If B lies along n, a box has the columns that
    fit into a row of 128 bytes. If B lies along k, a box has 64 or 32 columns, as `fetch_step`
    needs them.
    """
    m, n, k = problem.m, problem.n, problem.k
    rows, columns = cluster(tile)
    width = ROW_BYTES // problem.precision.item_bytes
    a = row_major_map(A, (m, k), (tile["BM"] // columns, width))
    if "B" in problem.column_major:
        return a, row_major_map(B, (n, k), (32 if tile["BN"] // 64 % rows else 64, width))
    return a, row_major_map(B, (k, n), (tile["BK"], width))


def maps(tile: Config, problem: Problem) -> tuple[TensorMap, ...]:
    """Return the tensor maps of A, B and C. C is stored by boxes of 64 rows and 128 bytes."""
    box = (PIECE_ROWS, ROW_BYTES // problem.precision.result_bytes)
    return (*operand_maps(tile, problem), row_major_map(C, (problem.m, problem.n), box))


def row_major_map(array: int, shape: tuple[int, int], box: tuple[int, int]) -> TensorMap:
    """Return the tensor map of a row-major matrix. Its boxes have swizzled rows of 128 bytes."""
    return TensorMap(array=array, shape=shape, box=box, swizzle_bytes=ROW_BYTES)


def refuse(_tile: Config, problem: Problem) -> str | None:
    """Refuse rows of A, B or C that are not multiples of 16 bytes, which the TMA does not take."""
    n = ALIGNED_BYTES // problem.precision.result_bytes
    k = ALIGNED_BYTES // problem.precision.item_bytes
    if problem.n % n or problem.k % k:
        both = f"N and K divisible by {n}" if n == k else f"N divisible by {n} and K by {k}"
        return f"the TMA takes {both}, not {problem.n} and {problem.k}"
    return None


def clusters(tile: Config, problem: Problem) -> int:
    """Return the number of clusters that cover C, with one tile per block."""
    rows, columns = cluster(tile)
    whole = {"BM": tile["BM"] * rows, "BN": tile["BN"] * columns}
    return tiles_of_c(Config(whole.items(), ("BM", "BN")), problem)


def even_grid(tiles: int, at_most: int) -> int:
    """Return the minimum number of workers that take no more rounds than `at_most` workers.

    For 256 tiles and at most 66 workers, the number is 64. With more workers, the last round would
    end no earlier, and an uneven last round takes 0.5 to 1.6 % longer on an H200.
    """
    rounds = -(-tiles // at_most)
    return -(-tiles // rounds)


def block_per_part(tile: Config, problem: Problem, *, threads: int, shared_bytes: int) -> Launch:
    """Return a launch that has one block for each tile and each part of K.

    The launch may start before the previous launch ends, unless the tile has `pdl=0`.
    """
    rows, columns = cluster(tile)
    blocks = rows * columns * int(tile.get("splits", 1))
    return Launch(
        grid=(blocks * clusters(tile, problem),),
        block=(threads,),
        shared_bytes=shared_bytes,
        tensor_maps=operand_maps(tile, problem),
        cluster=(blocks, 1, 1),
        pdl=bool(tile.get("pdl", 1)),
    )


def why_not_in_cluster(tile: Config, at_most: int = PORTABLE_CLUSTER) -> str | None:
    """Return why a cluster cannot have the number of blocks that a tile states, or None."""
    rows, columns = cluster(tile)
    if (blocks := rows * columns * tile.get("splits", 1)) > at_most:
        return f"{tile}: {blocks} blocks in a cluster, more than {at_most}"
    return None


def persistent(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Return a launch of whole clusters, with at most one block per multiprocessor."""
    rows, columns = cluster(tile)
    blocks = rows * columns
    grid = blocks * even_grid(clusters(tile, problem), max(1, multiprocessors // blocks))
    return Launch(
        grid=(grid,),
        block=(threads(tile),),
        shared_bytes=stages_and_results_bytes(tile),
        tensor_maps=maps(tile, problem),
        cluster=(blocks, 1, 1),
        pdl=bool(tile.get("pdl", 0)),
    )


def from_registers(threads: Callable[[Config], int]) -> Callable[[Config, Problem, int], Launch]:
    """Return a function like `persistent` for kernels that store results from registers.

    Such kernels have `threads` threads per block, and use all shared memory for stages.
    """

    def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
        return replace(
            persistent(tile, problem, multiprocessors),
            block=(threads(tile),),
            shared_bytes=stages_bytes(tile, problem.precision.item_bytes),
            tensor_maps=operand_maps(tile, problem),
        )

    return launches


def two_widths(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Return a launch with wide and narrow tiles, divided so that the last block ends earliest.

    If a wide tile consists of whole narrow tiles, all tiles are wide.
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
        at_most=max(1, multiprocessors // blocks),
    )
    return replace(launch, grid=(blocks * workers,), int_arguments=(wide,))


@cache
def split(
    *, down: int, columns: int, wide_columns: int, narrow_columns: int, at_most: int
) -> tuple[int, int]:
    """Return the number of wide tiles per row of tiles, and the number of workers.

    The choice minimizes the time of the slowest worker. Among equal times, it minimizes the number
    of narrow tiles, because narrow tiles take more bytes per operation. Finally, it minimizes the
    number of workers, as `even_grid` does.
    """

    def narrow(wide: int) -> int:
        return -(-max(columns - wide * wide_columns, 0) // narrow_columns)

    def longest(wide: int, workers: int) -> int:
        of_wide, of_all = down * wide, down * (wide + narrow(wide))

        def columns_of(first: int) -> int:
            """Return the total columns of the tile `first` and every `workers`-th tile after it."""
            own_wide = max(0, -(-(of_wide - first) // workers))
            own = -(-(of_all - first) // workers)
            return wide_columns * own_wide + narrow_columns * (own - own_wide)

        return max(map(columns_of, range(min(workers, of_all))))

    max_wide = -(-columns // wide_columns)
    wide = min(
        range(max(0, max_wide - FEWER_WIDE), max_wide + 1),
        key=lambda wide: (longest(wide, at_most), narrow(wide)),
    )
    best = longest(wide, at_most)
    return wide, next(n for n in range(1, at_most + 1) if longest(wide, n) == best)


def sums_that_fit(tile: Config) -> str | None:
    """Return why a thread cannot have the number of sums that a tile needs, or None."""
    bm, bn = tile.numbers("BM", "BN")
    if (sums := bm * bn // (128 * consumers(tile))) > MAX_SUMS:
        return f"{tile}: {sums} sums a thread, more than {MAX_SUMS}"
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
    """Return the space of tiles BM×BN×`step` with further axes.

    An example of a tile is `128x256x64/s4/cluster=2x1`. `constraint` returns why a block cannot
    have a tile of this size, or None.
    """

    def together(tile: Config) -> str | None:
        if reason := constraint(tile):
            return reason
        if (needed := shared_bytes(tile)) > MAX_DYNAMIC_BYTES:
            return f"{tile}: {needed} bytes of shared memory, more than {MAX_DYNAMIC_BYTES}"
        if tile.get("prefetch", 0) and not tile["pdl"]:
            return f"{tile}: prefetch needs pdl=1, to run while the previous launch ends"
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
    kernel: str = "",
    dtypes: tuple[str, ...] = DTYPES,
    refuse: Callable[[Config, Problem], str | None] = refuse,
    auto_tiles: Callable[[Problem, int], tuple[str, ...]] | None = None,
) -> CudaVariant:
    """Return the variant of a kernel for Hopper.

    `launches` takes (tile, problem, number of multiprocessors) and returns the launch.
    """

    def launch(tile: Config, problem: Problem) -> Launch:
        return launches(tile, problem, MULTIPROCESSORS)

    def specialize(_: Launch, tile: Config, problem: Problem, gpu: Gpu) -> Launch:
        return launches(tile, problem, gpu.multiprocessors)

    return CudaVariant(
        idea=idea,
        after=after,
        kernel=kernel,
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
