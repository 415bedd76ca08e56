"""A cost model that predicts which configuration of a kernel suits a shape.

In a step, a block multiplies its tile for some values of k. The time of a step has three bounds.
The first bound is the time of the multiply-adds. The second bound is the time in which all blocks
together fetch from the L2 cache. The third bound is the time in which data arrive in a
multiprocessor (for a `Choice`), or the time of the accesses to shared memory (for a `SmallTile`).
The model takes the p-norm of the bounds, which is a smooth maximum, and adds the time of the step's
barriers. The model multiplies this time by the number of steps of the multiprocessor that has the
most steps. Then the time of a launch, of the end of a tile, and of the parts of K is added.

A kernel states the properties of its configurations as a `Choice` if warpgroups multiply on tensor
cores, and as a `SmallTile` if the warps of several blocks share a multiprocessor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from operator import itemgetter
from typing import TypeVar

from gpubench.kernels.fitted_tile import (
    BY_64,
    FORMS,
    MAX_CLUSTER,
    MAX_SUMS,
    MAX_SUMS_OF_TURNS,
    RESIDENT,
    SENT_COLUMNS,
    STAGES,
    UNIT,
    Form,
    consumers,
    outgrows_l2,
    stage_bytes,
)
from gpubench.kernels.padded_rows import row_bytes
from gpubench.kernels.tensor_cores import (
    ALIGNED_BYTES,
    MAX_DYNAMIC_BYTES,
    ROW_BYTES,
    STATIC_BYTES,
)
from gpubench.kernels.tensor_cores import cluster as blocks_of_cluster
from gpubench.model import Config, Problem

LONG_K, SHORT_RING = 16, 8
"""A tile with at least `LONG_K` steps may have more than `SHORT_RING` stages. With fewer steps,
sixteen stages instead of eight take 0.07 µs more (docs/decisions/0028-few-rows.md)."""

PICKS = 3  # number of configurations to pick for a kernel that is ranked without other kernels

PICKS_TOGETHER = 8
"""Number of configurations to pick from kernels that the model ranks together. The number was
tested at 12 products in TF32 on an H100, which were not used to fit the model, with some 35
configurations each. The best of two picks takes 3.8 % longer than the fastest configuration, the
best of four picks 2.2 % longer, and the best of eight picks 1.6 % longer."""

Item = TypeVar("Item")
Key = TypeVar("Key")

SECTOR_BYTES = 32  # bytes of a sector of the L2 cache
CLOCK_MHZ = 1755.0  # clock that converts numbers of clocks to times, as in the fit of the constants
RATE = 128  # multiply-adds of a multiprocessor per clock, in float32 and on float64's tensor cores

ARRIVAL_US = ROW_BYTES / 64 / 1980
"""Time in which 128 bytes arrive in a multiprocessor: 64 bytes per clock, at the highest clock of
an H100."""

GPCS = 8
"""Number of graphics processing clusters (GPCs) of an H100 or H200. All blocks of a cluster run in
one GPC. Each GPC has an equal share of the L2 cache's rate."""

READ_US, LATENCY_US = 4.2e-3, 1.4
"""`READ_US` is the time in which an H200 reads 128 bytes from memory for each multiprocessor, at
4.02 TB/s. `LATENCY_US` is the time from the request of a step's data to their arrival, while memory
is busy."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Constants of the model for one architecture, in microseconds unless stated otherwise."""

    launch: float  # time from one launch to the next, without any steps
    end: float
    """Time per 10,000 elements of a tile, for the first steps of the tile and for the results. No
    other time overlaps with this time."""

    tensor: float
    """Factor on the time of multiply-adds. Without this factor, a step takes one clock for each 32
    elements of a tile on tensor cores, and one clock for each 128 multiply-adds on other units, at
    `CLOCK_MHZ`."""

    l2: float  # time in which each of 132 blocks fetches 1,000 rows of 128 bytes from the L2 cache
    barriers: float
    """Time per step in which threads wait for the stage and free it. No other time overlaps."""

    norm: float  # exponent p of the norm
    add_elements: float  # time per 10,000 elements of a tile to add the sums of all parts of K
    add_parts: float  # time for each part of K
    launch_of_turns: float = 0  # `launch` for kernels whose warpgroups take turns
    end_of_turns: float = 0  # `end` for the last tile of a block whose warpgroups take turns
    not_transposed: float = 1  # factor on `tensor` if an instruction's columns are columns of C
    sector: float = 0
    """Fraction by which the time to fetch a row of 128 bytes of A or B grows if the row lies in
    five sectors of 32 bytes instead of four."""

    idle: float = 0
    """If a fraction f of the multiprocessors is idle in a round, the steps of the round take less
    time by the fraction f · `idle`. The busy multiprocessors probably get more power and more of
    the L2 cache."""

    l2_of_a: float = 1  # factor on the time to fetch a row of A, compared with a row of B
    step_of_turns: float = 1  # factor on the time of a step if warpgroups take turns
    in_line: float = 0
    """Time by which a step is shorter if the four blocks of a cluster share only one operand. These
    blocks compute tiles in one row or in one column."""

    shared_rows: float = 0
    """Fraction of a row that a block fetches in addition to its part, if blocks share rows."""

    launch_of_pairs: float = 0
    """Time that each doubling of the number of blocks that share operands adds to a launch."""

    shared: float = 0  # factor on the time of shared memory at 128 bytes per clock and `CLOCK_MHZ`
    uneven: float = 0
    """How unevenly a launch spreads its blocks if it does not fill all multiprocessors. 0 means
    evenly. 1 means that one multiprocessor gets blocks until it is full."""


COSTS_OF_TENSOR_CORES = Costs(
    launch=3.179, launch_of_turns=3.781, end=0.8228, end_of_turns=0.431, tensor=1.098, l2=1.937,
    not_transposed=1.06, sector=0.2992, barriers=0.0166, idle=0.2904, norm=6.732,
    add_elements=0.9029, add_parts=0.0969,
)  # fmt: skip
"""Costs for `--launches alone` on compute capability 9.0. research/fit_tiles.py fitted them to
alone_17_bfloat16 and alone_18_float16 in results/h100/shapes, and to the products of few rows of
seed 61 (few_rows_bfloat16 at commit e975581f). The fit compares the configurations of a shape with
each other. So the error of a predicted time can exceed the difference of two configurations."""

COSTS_OF_16_BITS = replace(
    COSTS_OF_TENSOR_CORES, l2_of_a=0.8761, step_of_turns=0.9806, in_line=0.009694
)
"""Costs with three constants that were fitted to times of an H200: alone_201_bfloat16 and
alone_202_float16 at commit 3230886c, and alone_31_bfloat16 and alone_32_float16 at commit
7b5b86f8."""

COSTS_OF_8_BITS = replace(
    COSTS_OF_TENSOR_CORES, launch=3.233, launch_of_turns=3.829, end=0.6708, end_of_turns=0.1442,
    tensor=1.1, l2=1.819, not_transposed=1.041, sector=0.167, barriers=0.0008969, idle=0.15,
    norm=5.396, add_elements=0.7807, add_parts=0.07844,
)  # fmt: skip
"""Costs that were fitted to 20 products in float8 on an H200, with 40 configurations of each
(results/h200/fit_float8.csv). Times in int8 were not used."""

COSTS_OF_FLOAT32 = Costs(
    launch=5.267, end=1.5376, tensor=1.07147, shared=1.52432, l2=1.0309,
    barriers=0.012768, norm=6, add_elements=0.8344, add_parts=0, uneven=0.3043,
)  # fmt: skip
"""Costs that were fitted to the times of seed 11 (results/h200/shapes/fit_11_*.csv), as the
constants of float64 were."""

COSTS = {
    "bfloat16": COSTS_OF_16_BITS,
    "float16": COSTS_OF_16_BITS,
    "tf32": replace(
        COSTS_OF_TENSOR_CORES, launch=4.779, end=1.227, tensor=0.9118, l2=1.811, shared_rows=0.2099,
        barriers=0.03767, idle=0.1714, norm=5.801, add_elements=0.1066, add_parts=1.081,
    ),
    "int8": COSTS_OF_8_BITS,
    "float8_e4m3": COSTS_OF_8_BITS,
    "float64": Costs(
        launch=1.455, launch_of_pairs=0.9287, end=2.7128, tensor=0.904639, shared=0.271392,
        l2=1.50844, barriers=0.0266649, norm=6, add_elements=0.077328, add_parts=0.7785,
        uneven=0.2162,
    ),
    "float32": COSTS_OF_FLOAT32,
    "int32": COSTS_OF_FLOAT32,
}  # fmt: skip
"""Costs by precision. The constants of TF32 are fitted to results/h100/fit_tf32.csv and
fit_clusters_tf32.csv."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """The extents of a tile, and how the blocks of a cluster share it."""

    rows: int
    columns: int
    down: int = 1  # number of blocks of a cluster that share columns of B
    across: int = 1  # number of blocks of a cluster that share rows of A
    splits: int = 1  # number of parts of K


@dataclass(frozen=True, kw_only=True)
class Choice(Tile):
    """The properties of a configuration whose warpgroups multiply on tensor cores."""

    form: Form
    resident: int = 1  # number of blocks that a multiprocessor holds at once
    max_stages: int = STAGES[-1]

    @property
    def consumers(self) -> int:
        """Number of warpgroups that multiply a tile."""
        return 1 if self.form.in_turns else consumers(self.rows, self.columns)

    @property
    def sums(self) -> int:
        """Number of sums that a thread keeps."""
        return self.rows * self.columns // (128 * self.consumers)

    @property
    def stages(self) -> int:
        """Number of stages that fill a block's part of shared memory."""
        results = 2 * self.rows * ROW_BYTES if self.form.in_turns else 0
        room = (MAX_DYNAMIC_BYTES + STATIC_BYTES) // self.resident - STATIC_BYTES - results
        return min(self.max_stages, room // stage_bytes(self.rows, self.columns))

    def rounds_us(
        self, problem: Problem, clusters: int, at_once: int, multiprocessors: int, costs: Costs
    ) -> float:
        """Add up the time that one step takes in each round of tiles.

        In a round, `at_once` clusters are resident at the same time.
        """
        fetched = _rows_fetched(self, problem, costs)
        blocks = self.down * self.across * self.splits
        from_memory = outgrows_l2(problem)
        rows_of_tiles = -(-problem.m // (self.rows * self.down))

        def round_us(busy: float) -> float:
            """Return the time of a step while `busy` clusters work."""
            share = busy * blocks / multiprocessors
            # The share of busy multiprocessors in the GPC that has the most clusters, whose fetches
            # take longest.
            fullest = min(math.ceil(busy / GPCS) * GPCS * blocks / multiprocessors, 1)
            step_us = _step_us(self, fetched, fullest, costs)
            step_us *= 1 - costs.idle * (1 - busy / at_once)
            if self.form.in_turns:
                step_us *= costs.step_of_turns
            if from_memory:
                # A row of tiles finds some columns of B in the cache, because other rows read them.
                read_us = READ_US * self.columns / self.down * share / math.sqrt(rows_of_tiles)
                step_us = max(step_us, read_us, LATENCY_US / self.stages)
            return step_us

        rounds, rest = divmod(clusters, at_once)
        if self.form.in_turns:  # all rounds have the same number of tiles (`even_grid`)
            whole = rounds + (rest > 0)
            return whole * round_us(clusters / whole)
        return rounds * round_us(at_once) + (round_us(rest) if rest else 0.0)

    def __str__(self) -> str:
        parts = f"/k{self.splits}" if self.splits > 1 else ""
        return (
            f"{self.rows}x{self.columns}x{self.form.step}/s{self.stages}{parts}"
            f"/cluster={self.down}x{self.across}{self.form.options}"
        )


@dataclass(frozen=True, kw_only=True)
class SmallTile(Tile):
    """The properties of a configuration with several blocks per multiprocessor."""

    tile: Config
    warps: int  # number of warps of a block that multiply
    resident: int  # number of blocks that a multiprocessor holds at once
    issued: float
    """Number of instructions that the loop issues per multiply-add. The multiply-add itself counts,
    so the number is at least 1."""

    shared_clocks: float  # clocks of a step's accesses to shared memory, without bank conflicts

    @classmethod
    def of(cls, tile: Config, **properties: float) -> SmallTile:
        """Return the configuration with the extents of a tile and these properties."""
        rows, columns, splits = tile.numbers("BM", "BN", "splits")
        down, across = blocks_of_cluster(tile)
        extents = {"rows": rows, "columns": columns, "down": down, "across": across}
        return cls(tile=tile, splits=splits, **extents, **properties)  # type: ignore[arg-type]

    def rounds_us(
        self, problem: Problem, clusters: int, at_once: int, multiprocessors: int, costs: Costs
    ) -> float:
        """Return the time for one step of each block on the multiprocessor with the most blocks."""
        full, rest = divmod(-(-clusters // at_once), self.resident)
        held = float(rest)
        if not full:
            held += costs.uneven * (min(self.resident, clusters) - rest)
        row_bytes = self.tile["BK"] * problem.precision.item_bytes
        fetched = row_bytes * (self.rows / self.across + self.columns / self.down) / ROW_BYTES
        busy = min(clusters * self.down * self.across * self.splits / multiprocessors, 1)
        of_memory = (
            self.shared_clocks * costs.shared / CLOCK_MHZ,
            costs.l2 * fetched * 1e-3 * busy,
        )

        def step_us(together: float) -> float:
            """Return the time in which each of `together` blocks makes a step."""
            rate = RATE / self.issued * min(together * self.warps / 4, 1)  # 4 schedulers
            products = self.rows * self.columns * self.tile["BK"]
            multiply_us = costs.tensor * products / rate / CLOCK_MHZ
            return together * (costs.barriers + _norm((multiply_us, *of_memory), costs.norm))

        return full * step_us(self.resident) + (step_us(held) if rest else 0.0)

    def __str__(self) -> str:
        return str(self.tile)


def predicted_us(
    choice: Choice | SmallTile, problem: Problem, multiprocessors: int, costs: Costs
) -> float:
    """Predict the microseconds of a product in a burst of launches, with operands in the cache."""
    area, pair, parts = choice.rows * choice.columns, choice.down * choice.across, choice.splits
    clusters = problem.batch * math.prod(
        -(-extent // each)
        for extent, each in (
            (problem.m, choice.rows * choice.down),
            (problem.n, choice.columns * choice.across),
        )
    )
    if isinstance(choice, Choice):
        resident = RESIDENT[pair * parts - 1]  # number of clusters
        in_turns, depth, together = choice.form.in_turns, choice.form.step, choice.resident
    else:
        size = min(pair * parts, MAX_CLUSTER)
        resident = RESIDENT[size - 1] * size // (pair * parts)
        in_turns, depth, together = False, choice.tile["BK"], choice.resident
    at_once = max(resident * multiprocessors // RESIDENT[0], 1)
    whole = -(-clusters // (at_once * together))
    if in_turns:
        other_us = costs.launch_of_turns + costs.end_of_turns * area * 1e-4
    else:
        other_us = costs.launch + whole * costs.end * area * 1e-4
    other_us += costs.launch_of_pairs * math.log2(pair)
    if parts > 1:
        other_us += whole * (costs.add_elements * area * 1e-4 + costs.add_parts * parts)
    steps = max(-(-problem.k // depth // parts), 1)
    return other_us + steps * choice.rounds_us(problem, clusters, at_once, multiprocessors, costs)


def _norm(bounds_us: Sequence[float], exponent: float) -> float:
    return float(sum(bound**exponent for bound in bounds_us) ** (1 / exponent))


def _rows_fetched(choice: Choice, problem: Problem, costs: Costs) -> float:
    """Return the data that a block fetches in a step, as a number of aligned rows of 128 bytes.

    A row of A counts as `costs.l2_of_a` rows.
    """
    pitch_of_b = problem.k if "B" in problem.column_major else problem.n

    def fetched(rows: int, blocks: int, pitch: int) -> float:
        """Return the number of rows that each block fetches if `blocks` blocks share `rows`."""
        each = rows * (1 / blocks + costs.shared_rows * (blocks > 1))
        pitch_bytes = pitch * problem.precision.item_bytes
        if pitch_bytes % ALIGNED_BYTES:  # rows are copied first, and then begin at cache lines
            return each
        return each * (1 + costs.sector * (pitch_bytes % SECTOR_BYTES != 0))

    of_a = fetched(choice.rows, choice.across, problem.k)
    return costs.l2_of_a * of_a + fetched(choice.columns, choice.down, pitch_of_b)


def _step_us(choice: Choice, fetched: float, share: float, costs: Costs) -> float:
    """Return the time of a step if a fraction of multiprocessors fetch `fetched` rows each.

    `share` is the fraction.

    All rows and columns of a tile arrive in a multiprocessor, including the rows and columns that
    other blocks of the cluster fetch.
    """
    tensor = costs.tensor * choice.rows * choice.columns / 32 / CLOCK_MHZ
    if choice.columns % BY_64:
        tensor *= costs.not_transposed
    arrival = ARRIVAL_US * (choice.rows + choice.columns)
    bounds_us = (tensor, costs.l2 * fetched * 1e-3 * share, arrival)
    in_line = {choice.down, choice.across} == {1, 4}
    return costs.barriers - costs.in_line * in_line + _norm(bounds_us, costs.norm)


def choices(form: Form, problem: Problem) -> Iterator[Choice]:
    """Yield the configurations of a kernel of this form that the model compares.

    If several extents need the same number of tiles, only the smallest extent is yielded. If K is
    in parts, only the smallest multiple of `UNIT` rows is yielded.
    """
    steps = -(-problem.k // form.step)
    for cluster in form.clusters:
        down, across = map(int, cluster.split("x"))
        rows_sent = [
            rows
            for rows in form.rows
            if not (form.sends_equal_rows and rows % (8 * across))
            and (rows >= BY_64 or rows * down >= problem.m)
            and not (form.in_turns and rows % (4 * problem.precision.result_bytes))
        ]
        sent = SENT_COLUMNS.get(form.step, 1) * down
        columns_sent = [columns for columns in form.columns if columns % sent == 0]
        whole_rows = _fewest(problem.m, down, rows_sent)
        rows_in_parts = _fewest(problem.m, down, [rows for rows in rows_sent if rows % UNIT == 0])
        all_columns = _fewest(problem.n, across, columns_sent)
        splits = [
            parts
            for parts in form.splits
            if parts == 1 or (2 * parts <= steps and form.compares(down, across, parts))
        ]
        for rows, columns in product(rows_sent, columns_sent):
            if transposed := columns % BY_64 == 0:
                if rows not in whole_rows | rows_in_parts:
                    continue
            elif rows % BY_64 or columns not in all_columns:
                continue
            choice = Choice(form=form, rows=rows, columns=columns, down=down, across=across)
            max_sums = MAX_SUMS_OF_TURNS if form.in_turns else MAX_SUMS[choice.consumers]
            if choice.sums > max_sums or choice.stages < STAGES[0]:
                continue
            for parts in splits:
                if not transposed or rows in (whole_rows if parts == 1 else rows_in_parts):
                    max_stages = STAGES[-1] if steps // parts >= LONG_K else SHORT_RING
                    yield replace(choice, splits=parts, max_stages=max_stages)


def _fewest(extent: int, together: int, sizes: Sequence[int]) -> set[int]:
    """Return the smallest size of a tile for each number of tiles that can cover an extent."""
    smallest: dict[int, int] = {}
    for size in sizes:
        smallest.setdefault(-(-extent // (size * together)), size)
    return set(smallest.values())


Choices = Callable[[Problem], Iterable[Choice | SmallTile]]


@cache
def ranked(
    choices: Choices, problem: Problem, multiprocessors: int
) -> Mapping[Choice | SmallTile, float]:
    """Return a kernel's configurations with the predicted microseconds, the fastest first."""
    costs = COSTS[problem.dtype]
    every = choices(problem)
    times = {choice: predicted_us(choice, problem, multiprocessors, costs) for choice in every}
    return dict(sorted(times.items(), key=itemgetter(1)))


@cache
def choices_of(form: Form) -> Choices:
    """Return the function that yields a form's configurations.

    Calls with the same form return the same object.
    """
    return partial(choices, form)


@cache
def picked(
    problem: Problem, multiprocessors: int, among: tuple[Form, ...] = FORMS
) -> Mapping[Form, list[Choice | SmallTile]]:
    """Return the configurations that the model picks for a problem, by form.

    Each form that suits the problem gets at least one pick, so that `--tiles auto` measures it.
    """
    odd_rows = any(row_bytes(problem))
    # Kernels whose warpgroups take turns copy no rows, and store results by boxes.
    boxed = not odd_rows and problem.n * problem.precision.result_bytes % ALIGNED_BYTES == 0
    of_dtype = [
        form for form in among if problem.dtype in form.dtypes and (boxed or not form.in_turns)
    ]
    forms = [form for form in of_dtype if form.odd_rows == odd_rows] or of_dtype
    times = {
        (form, choice): time_us
        for form in forms
        for choice, time_us in ranked(choices_of(form), problem, multiprocessors).items()
    }
    return first_together(sorted(times, key=times.__getitem__), forms)


def first_together(
    ranked_together: Iterable[tuple[Key, Item]], kernels: Collection[Key]
) -> dict[Key, list[Item]]:
    """Pick items of each kernel.

    `ranked_together` has pairs of a kernel and an item, the fastest first. The first
    `PICKS_TOGETHER` items are picked. A kernel without a pick gets its first item.
    """
    of_kernel: dict[Key, list[Item]] = {kernel: [] for kernel in kernels}
    for place, (kernel, item) in enumerate(ranked_together):
        if place < PICKS_TOGETHER or not of_kernel[kernel]:
            of_kernel[kernel].append(item)
    return of_kernel


@dataclass(frozen=True)
class Picks:
    """Picks configurations of a kernel. An instance is a value for `CudaVariant.auto_tiles`."""

    form: Form
    among: tuple[Form, ...] = FORMS
    """The forms that are ranked together."""

    @property
    def choices(self) -> Choices:
        """The function that yields the configurations that the model compares."""
        return choices_of(self.form)

    def __call__(self, problem: Problem, multiprocessors: int) -> tuple[str, ...]:
        """Return the picked configurations of the form for a problem."""
        return tuple(map(str, picked(problem, multiprocessors, self.among).get(self.form, ())))


@dataclass(frozen=True)
class DifferentPicks:
    """Picks configurations of a kernel that is ranked alone (`CudaVariant.auto_tiles`).

    The picks differ in the size of a tile per part of K, or in the number of blocks of a cluster.
    At 30 shapes on an H200 (seed 11 of `research/shapes.py`), the best of three picks takes 0.3 %
    longer than the fastest configuration in float64, and 0.9 % longer in float32. If rows of B are
    not a multiple of 16 bytes, twice as many configurations are picked, because the constants were
    fitted without such rows.
    """

    choices: Choices
    few_rows: int = 0  # maximum M for which twice as many configurations are picked

    def __call__(self, problem: Problem, multiprocessors: int) -> tuple[str, ...]:
        """Return the picked configurations for a problem."""
        different: dict[tuple[float, int], str] = {}
        is_unfitted = problem.m <= self.few_rows or row_bytes(problem)[1] > 0
        count = PICKS * (2 if is_unfitted else 1)
        for choice in ranked(self.choices, problem, multiprocessors):
            blocks = choice.down * choice.across * choice.splits
            size = choice.rows * choice.columns / choice.splits
            different.setdefault((size, blocks), str(choice))
            if len(different) == count:
                break
        return tuple(different.values())
