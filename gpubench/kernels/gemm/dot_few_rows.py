from gpubench.kernels.block_tiles import tiles_of_c, variant
from gpubench.kernels.fitted_tile import MAX_CLUSTER
from gpubench.kernels.layouts import instance
from gpubench.model import Config, Launch, Problem, Space

THREADS = 256

VECTOR_BYTES = 16

ROWS = (1, 2, 4, 8, 16)
"""Rows of a tile, and of a thread."""

MAX_ROWS = {4: 16, 2: 4}
"""Maximum M by bytes of an element. With more rows, multiply-adds and conversions limit."""

MAX_SUMS = 64
"""Maximum number of sums of a thread. More sums leave too few registers for loads in flight."""

PARTS, LINE_BYTES = (1, 2, 4, 8), 128
"""Parts of K, and the minimum bytes of a row of a tile of B, that are compared."""

PICKS = 3
"""Number of configurations that are picked for a problem."""


def shared_bytes(tile: Config, problem: Problem) -> int:
    """Return the shared memory of the sums of all threads: `rows` rows of float32 sums each."""
    return int(THREADS * tile["rows"] * VECTOR_BYTES // problem.precision.item_bytes * 4)


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch a cluster of SPLITS blocks per tile of C."""
    vector = VECTOR_BYTES // problem.precision.item_bytes
    aligned = problem.n % vector == problem.k % vector == 0
    splits = tile["splits"]
    return Launch(
        kernel="" if aligned else instance("dot_few_rows", tile, False),
        grid=(splits * tiles_of_c(tile, problem),),
        block=(THREADS,),
        shared_bytes=shared_bytes(tile, problem),
        cluster=(splits, 1, 1),
        pdl=True,
    )


def together(tile: Config) -> str | None:
    """Require that threads' rows divide a tile's, and that a block has enough threads."""
    rows, columns, each = tile.numbers("BM", "BN", "rows")
    if rows % each:
        return f"{tile}: {each} rows a thread do not divide {rows}"
    if (threads := rows // each * columns // 4) > THREADS:
        return f"{tile}: {threads} threads, and a block has {THREADS}"
    return None


def refuse(tile: Config, problem: Problem) -> str | None:
    """Refuse many rows, and sums that leave no registers."""
    if problem.m > (max_rows := MAX_ROWS[problem.precision.item_bytes]):
        return f"reads B once for each {max_rows} rows, so it takes M up to {max_rows}"
    sums = tile["rows"] * VECTOR_BYTES // problem.precision.item_bytes
    if sums > MAX_SUMS:
        return (
            f"{tile['rows']} rows a thread have {sums} sums with {problem.dtype}, over {MAX_SUMS}"
        )
    return None


TILES = Space(
    axes={
        "BM": ROWS,
        "BN": (32, 64, 128, 256),
        "rows": ROWS,
        "unroll": (1, 2, 4),
        "splits": range(1, MAX_CLUSTER + 1),
    },
    block=("BM", "BN"),
    default=("1x64/k8/rows=1/unroll=2", "4x64/k4/rows=4/unroll=1", "8x128/k8/rows=8/unroll=1"),
    constraint=together,
)

LAUNCH_US, PARTS_US, PART_US, STEP_US, SUM_US = 2.11, 0.967, 0.0976, 0.305, 0.0265
"""Microseconds of a launch, of having parts of K, of each part, of a step's loads, and of each sum
of a thread. These constants and the next were fitted to 12 shapes of 1 to 16 rows on an H100."""

READ_PER_US, MULTIPLIED_PER_US = 81_500, 84_400
"""Bytes that a multiprocessor reads, and products that it adds, in a microsecond."""

NORM = 3
"""Exponent of the norm of these bounds."""


def expected_us(tile: Config, problem: Problem, multiprocessors: int) -> float:
    """Return the time of a product, from its steps' loads and the busiest multiprocessor."""
    rows, columns, each, unroll, splits = tile.numbers("BM", "BN", "rows", "unroll", "splits")
    item = problem.precision.item_bytes
    vector = VECTOR_BYTES // item
    depth = THREADS * vector * vector * unroll * each // (columns * rows)
    steps = -(-problem.k // (depth * splits))
    registers = 4 * unroll * (vector + each) + each * vector + 40  # as in the source
    resident = 3 if registers <= 80 else 2 if registers <= 128 else 1  # noqa: PLR2004 # see the .cu
    blocks = splits * tiles_of_c(tile, problem)
    waves = -(-blocks // (resident * multiprocessors))
    elements = -(-blocks // multiprocessors) * steps * depth * columns
    rates_us = elements * item / READ_PER_US, elements * rows / MULTIPLIED_PER_US
    bounds_us = (waves * steps * STEP_US, *rates_us)
    parts_us = PARTS_US * (splits > 1) + PART_US * splits
    other_us = LAUNCH_US + parts_us + SUM_US * each * vector
    return float(other_us + sum(bound**NORM for bound in bounds_us) ** (1 / NORM))


def auto_tiles(problem: Problem, multiprocessors: int) -> tuple[str, ...]:
    """Return the fastest configurations by `expected_us` whose tiles cover M in one row."""
    rows = min(rows for rows in ROWS if rows >= min(problem.m, ROWS[-1]))
    each = min(rows, 8)
    unroll = 2 if each == 1 and problem.dtype == "float32" else 1
    times = {
        tile: expected_us(tile, problem, multiprocessors)
        for tile in TILES
        if (tile["BM"], tile["rows"], tile["unroll"]) == (rows, each, unroll)
        and tile["splits"] in PARTS
        and tile["BN"] >= max(LINE_BYTES // problem.precision.item_bytes, 8 * each)
    }
    return tuple(map(str, sorted(times, key=times.__getitem__)[:PICKS]))


VARIANT = variant(
    idea="few rows: a thread's columns of B come straight from memory, and a cluster divides K",
    after="splitk_cluster",
    dtypes=("float32", "bfloat16", "float16"),
    capability=(9, 0),
    tiles=TILES,
    launch=launch,
    refuse=refuse,
    auto_tiles=auto_tiles,
)
