"""Which configuration suits a shape: a cost model for the kernels of `fitted_tile.cuh`.

The constants were fitted in 16 bits. `wgmma_bytes_cluster` and `wgmma_tf32_cluster` take constants
of 16 bits, too: in 8 bits and in TF32 a step has the same bytes, and takes the same time on tensor
cores.

A block's step multiplies BM×BN elements by 64 values of k. Its time has four bounds: the tensor
cores, the accesses to shared memory, what all blocks together fetch from the L2 cache, and what
the block itself fetches. The model takes their p-norm, their maximum with a soft edge, and adds the
time of the step's barriers. It multiplies by the steps of the block that has the most, and adds the
cost of a launch, of a tile's end, and of parts of K.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import TypeVar

from gpubench.kernels.fitted_tile import (
    BY_64,
    CLUSTERS,
    EXTENTS,
    MAX_CLUSTER,
    MAX_SUMS,
    MAX_SUMS_OF_TURNS,
    RESIDENT,
    ROWS_BY_8,
)
from gpubench.kernels.tensor_cores import BYTES_STEP, MAX_DYNAMIC_BYTES, ROW_BYTES, STEP
from gpubench.model import Problem

PICKS = 2
"""Number of configurations that the model picks per kernel, on average over kernels that it ranks
together."""

Item = TypeVar("Item")

MIN_STAGES, MAX_STAGES, MAX_STAGES_OF_ROUNDS = 3, 8, 6

MAX_SPLITS, MAX_SPLITS_OF_PAIRS = 8, 4

RESULT_BUFFERS = 3 * 4096
"""Shared memory that `wgmma_split_tail` sets aside for results, with three warpgroups."""

STEPS = {"wgmma_bytes_cluster": BYTES_STEP, "wgmma_tf32_cluster": 32}
"""Values of k of a step, for the kernels not for 16 bits. They take K in one part or more."""

PAIRS = ((1, 1), (1, 2), (2, 1))
"""Rows and columns of blocks that share operands, where at most two do."""

TF32_COLUMNS = (64, 128)
"""Columns of a tile of `wgmma_tf32_cluster`."""

LINE_BYTES, SECTOR_BYTES = 128, 32
"""Sizes of a line and of a sector of the L2 cache."""

MANY_SUMS = 128
"""Number of sums of a thread above which two warpgroups have no registers left for results."""

CLOCK_MHZ = 1755.0
"""Clock at which clock counts become times; the constants are fitted to it."""

LONG_PRODUCT = 3e10
"""Multiply-adds of a product in which the clock begins to fall."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Constants of the model for one architecture, in microseconds unless stated otherwise."""

    launch: float
    """From one launch to the next, without any steps."""

    launch_of_rounds: float
    """The same for `wgmma_split_tail`."""

    launch_of_turns: float
    """The same for `wgmma_pingpong`."""

    launch_of_pairs: float
    """What each doubling of the blocks that share operands adds to the time of a launch."""

    restart: float
    """From the end of a block to the first step of the next one on the same multiprocessor."""

    end: float
    """For 10,000 elements of a tile: its first steps and its results, which nothing overlaps."""

    end_of_rounds: float
    """The same for `wgmma_split_tail`."""

    end_of_turns: float
    """The same for the last tile of a block of `wgmma_pingpong`."""

    end_of_full: float
    """For a tile of `wgmma_split_tail` whose sums leave no registers for results: the results are
    stored before the next tile's first step, not during its steps."""

    tensor: float
    """Factor on the tensor cores' rate of 32 elements a clock and step, at `CLOCK_MHZ`."""

    clock: float
    """Share by which that rate falls in long products, as the clock does."""

    not_transposed: float
    """Factor where an instruction's columns are C's columns."""

    one_consumer: float
    """Factor where one warpgroup multiplies."""

    three_consumers: float
    """Factor where three warpgroups multiply."""

    shared: float
    """Factor on shared memory's rate of 128 bytes a clock, at `CLOCK_MHZ`."""

    l2: float
    """For 1,000 rows of 128 bytes that each of 132 blocks fetches: the L2 cache's rate."""

    fetch: float
    """For 1,000 rows of 128 bytes that a block fetches: its own rate."""

    row_of_a: float
    """What a row of A counts, in rows of B that lie in one line of the cache."""

    a_line: float
    """Share by which a row of A counts more where it lies in two lines."""

    a_sector: float
    """The same where it lies in five sectors of 32 bytes, not four."""

    b_line: float
    b_sector: float
    """The same for B."""

    narrow: float
    """What each column counts that is missing in the last 64 of B's columns."""

    barriers: float
    """For a step: a warpgroup waits for the stage, and frees it. Nothing overlaps this time."""

    beyond: float
    """Share by which steps take longer, for each share of the tiles' elements beyond C's edges.
    Measured, without a known reason: the rows and columns outside A and B are not fetched."""

    idle: float
    """Share by which a round's steps take less time, for each share of the multiprocessors that is
    idle in the round. The busy multiprocessors probably get more power and more of the L2 cache."""

    norm: float
    """Exponent p of the norm."""

    add_elements: float
    """For 10,000 elements of a tile whose sums meet."""

    add_parts: float
    """For each part of K."""


COSTS = {
    (9, 0): Costs(
        launch=2.222,
        launch_of_rounds=3.374,
        launch_of_turns=2.645,
        launch_of_pairs=0.1489,
        restart=0,
        end=1.232,
        end_of_rounds=0.8893,
        end_of_turns=1.315,
        end_of_full=0.8906,
        tensor=0.7939,
        clock=0.1648,
        not_transposed=1.139,
        one_consumer=0.9659,
        three_consumers=1.037,
        shared=0.3,
        l2=0.9677,
        fetch=0.297,
        row_of_a=1.567,
        a_line=0.02043,
        a_sector=0.4433,
        b_line=0,
        b_sector=1.586,
        narrow=0.3696,
        barriers=0.05826,
        beyond=0.01509,
        idle=0.1087,
        norm=3.643,
        add_elements=0.222,
        add_parts=0.7851,
    )
}
"""By compute capability, for launches alone in 16 bits. They were fitted to 18 shapes. The
shapes of alone_17_bfloat16 in results/h100/shapes are others, and judge them."""

OVERLAPPED_COSTS = {
    (9, 0): Costs(
        launch=1.656,
        launch_of_rounds=2.786,
        launch_of_turns=1.9,
        launch_of_pairs=0.341,
        restart=0,
        end=0.9956,
        end_of_rounds=0.7432,
        end_of_turns=0.9,
        end_of_full=0.7083,
        tensor=0.7954,
        clock=0.2608,
        not_transposed=1.036,
        one_consumer=1.249,
        three_consumers=0.9983,
        shared=0.5128,
        l2=0.5138,
        fetch=0.566,
        row_of_a=1.488,
        a_line=0.2417,
        a_sector=0.8979,
        b_line=0.8408,
        b_sector=1.162,
        narrow=0.5277,
        barriers=0.0482,
        beyond=0.3101,
        idle=0.2258,
        norm=4.154,
        add_elements=0.1719,
        add_parts=0.4922,
    )
}
"""By compute capability, for launches that overlap. The kernels for 8 bits and TF32 take them for
all launches. benchmarks/fit_tiles.py fitted them to fit_1, fit_2, fit_3, fit_7, fit_8 and judged_9
in results/h200/shapes. The fit compares the configurations of a shape with each other, so a
predicted time can be off by more than the difference between two predicted times."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The properties of a configuration that the model uses."""

    rows: int
    columns: int
    down: int = 1
    """Blocks of a cluster that share columns."""

    across: int = 1
    """Blocks of a cluster that share rows."""

    step: int = STEP
    """Values of k of a step, in rows of 128 bytes."""

    splits: int = 1
    in_rounds: bool = False
    """Whether blocks stay for several tiles: `wgmma_split_tail`."""

    in_turns: bool = False
    """Whether blocks stay, and each warpgroup has tiles of its own: `wgmma_pingpong`."""

    @property
    def by_64(self) -> int:
        """The extent that is a multiple of 64: 64 for each piece of a warpgroup."""
        return self.rows if self.columns % BY_64 else self.columns

    @property
    def consumers(self) -> int:
        """Number of warpgroups that multiply a tile."""
        if self.in_turns:
            return 1
        return 1 if self.by_64 == BY_64 else 3 if self.by_64 % (3 * BY_64) == 0 else 2

    @property
    def sums(self) -> int:
        """Number of sums of a thread."""
        return self.rows * self.columns // (128 * self.consumers)

    @property
    def stages(self) -> int:
        """Number of stages that fill shared memory."""
        stage = (self.rows + -(-self.columns // BY_64) * BY_64) * ROW_BYTES
        if self.in_turns:
            return min(MAX_STAGES, (MAX_DYNAMIC_BYTES - 2 * self.rows * ROW_BYTES) // stage)
        if self.in_rounds:
            return min(MAX_STAGES_OF_ROUNDS, (MAX_DYNAMIC_BYTES - RESULT_BUFFERS) // stage)
        return min(MAX_STAGES, MAX_DYNAMIC_BYTES // stage)

    def __str__(self) -> str:
        parts = f"/k{self.splits}" if self.splits > 1 else ""
        further = "/group=8" if self.step == STEP else ""
        further += "/pdl=1" if further and not self.in_turns else ""
        return (
            f"{self.rows}x{self.columns}x{self.step}/s{self.stages}{parts}"
            f"/cluster={self.down}x{self.across}{further}"
        )


def predicted_us(choice: Choice, problem: Problem, multiprocessors: int, costs: Costs) -> float:
    """Return the time of a product in short bursts with operands in the cache, in microseconds."""
    area, pair, parts = choice.rows * choice.columns, choice.down * choice.across, choice.splits
    clusters = -(-problem.m // (choice.rows * choice.down)) * -(
        -problem.n // (choice.columns * choice.across)
    )
    at_once = RESIDENT[pair * parts - 1] * multiprocessors // RESIDENT[0]
    rounds, rest = divmod(clusters, at_once)
    shares_last = choice.in_rounds and pair == 2 and 0 < 2 * rest <= at_once  # noqa: PLR2004 # a pair
    whole = rounds + (rest > 0 and not shares_last)

    def step_us(busy: float, *, alone: bool = False) -> float:
        """Return the time of a step while `busy` clusters work."""
        fetched = _rows_fetched(choice, problem, costs, alone=alone)
        share = busy * pair * parts / multiprocessors
        return _step_us(choice, problem, fetched, share, costs)

    def round_us(busy: float) -> float:
        return step_us(busy) * (1 - costs.idle * (1 - busy / at_once))

    if not (choice.in_rounds or choice.in_turns):
        rounds_us = rounds * step_us(at_once) + (round_us(rest) if rest else 0.0)
    elif shares_last:
        rounds_us = rounds * step_us(at_once)
    else:  # the rounds are evened, so all blocks are busy in each
        rounds_us = whole * round_us(clusters / whole)
    if shares_last:
        busy = at_once if whole else 2 * rest
        rounds_us += step_us(busy, alone=True) / 2
    steps = max(-(-problem.k // choice.step // parts), 1)
    tiles = whole + shares_last / 2
    if choice.in_turns:  # the end of a tile is under the steps of the next
        other_us = costs.launch_of_turns + costs.end_of_turns * area * 1e-4
    elif choice.in_rounds:
        end_us = costs.end_of_rounds * area * 1e-4
        end_us += costs.end_of_full * (choice.sums > MANY_SUMS)
        other_us = costs.launch_of_rounds + tiles * end_us
    else:
        other_us = costs.launch + (tiles - 1) * costs.restart + tiles * costs.end * area * 1e-4
    other_us += costs.launch_of_pairs * math.log2(pair)
    if parts > 1 or shares_last:
        each_us = costs.add_elements * area * 1e-4 + costs.add_parts * max(parts, 2)
        other_us += each_us * (whole if parts > 1 else 1)
    beyond = clusters * pair * area / (problem.m * problem.n) - 1
    return steps * rounds_us * (1 + costs.beyond * beyond) + other_us


def _rows_fetched(choice: Choice, problem: Problem, costs: Costs, *, alone: bool) -> float:
    """Return what a block fetches of a step, in rows of B of 128 bytes in one cache line.

    If a matrix's rows are not a multiple of 128 bytes, most rows of 128 bytes lie in two lines.
    `alone`: blocks of a pair share nothing.
    """
    of_a = choice.rows / (1 if alone else choice.across)
    lacking = -choice.columns % BY_64
    of_b = (choice.columns + costs.narrow * lacking) / (1 if alone else choice.down)
    item = problem.precision.item_bytes
    row_of_a = _row_cost(problem.k * item, costs.a_line, costs.a_sector)
    pitch_of_b = problem.k if "B" in problem.column_major else problem.n
    row_of_b = _row_cost(pitch_of_b * item, costs.b_line, costs.b_sector)
    return of_a * costs.row_of_a * row_of_a + of_b * row_of_b


def _row_cost(pitch_bytes: int, line: float, sector: float) -> float:
    in_two_lines = 1 - math.gcd(pitch_bytes, LINE_BYTES) / LINE_BYTES
    return 1 + line * in_two_lines + sector * (pitch_bytes % SECTOR_BYTES != 0)


def _step_us(choice: Choice, problem: Problem, fetched: float, share: float, costs: Costs) -> float:
    """Return the time of a step where `share` of the multiprocessors fetch `fetched` rows each."""
    rows, columns = choice.rows, choice.columns
    instruction_columns = rows * columns // choice.by_64
    tensor = costs.tensor * rows * columns / 32
    tensor *= 1 + costs.clock * math.tanh(problem.m * problem.n * problem.k / LONG_PRODUCT)
    if choice.consumers == 1 and not choice.in_turns:
        tensor *= costs.one_consumer
    elif choice.consumers == 3:  # noqa: PLR2004 # the most there are
        tensor *= costs.three_consumers
    if choice.columns % BY_64:
        tensor *= costs.not_transposed
    # Each piece of 64 reads its 64 rows and all of the other operand; the TMA writes both once.
    shared = choice.by_64 // BY_64 * (BY_64 + instruction_columns) + rows + columns
    bounds = (
        tensor / CLOCK_MHZ,
        costs.shared * shared / CLOCK_MHZ,
        costs.l2 * fetched * 1e-3 * share,
        costs.fetch * fetched * 1e-3,
    )
    return costs.barriers + float(sum(bound**costs.norm for bound in bounds) ** (1 / costs.norm))


def choices(kernel: str, problem: Problem) -> Iterator[Choice]:
    """Yield the configurations that the model compares.

    Among extents that need equally many tiles, it yields only the smallest.
    """
    step = STEPS.get(kernel, STEP)
    steps = -(-problem.k // step)
    by_8 = kernel in KERNELS_BY_8
    for down, across in CLUSTERS if by_8 else PAIRS:
        all_rows = _fewest(problem.m, down, ROWS_BY_8 if by_8 else EXTENTS)
        all_columns = _fewest(problem.n, across, EXTENTS)
        most = MAX_SPLITS if down * across == 1 else MAX_SPLITS_OF_PAIRS
        splits = range(2, min(most, steps // 2, MAX_CLUSTER) + 1)
        for rows, columns in product(ROWS_BY_8 if by_8 else EXTENTS, EXTENTS):
            transposed = columns % BY_64 == 0
            if not (
                (transposed and rows in all_rows)
                or (rows % BY_64 == 0 and columns in all_columns and kernel != "wgmma_pingpong")
            ):
                continue
            if rows % (8 * across):
                continue
            choice = Choice(
                rows=rows,
                columns=columns,
                down=down,
                across=across,
                step=step,
                in_rounds=kernel == "wgmma_split_tail",
                in_turns=kernel == "wgmma_pingpong",
            )
            if choice.sums > (MAX_SUMS_OF_TURNS if choice.in_turns else MAX_SUMS[choice.consumers]):
                continue
            if kernel == "wgmma_tf32_cluster" and columns not in TF32_COLUMNS:
                continue
            if by_8:
                if choice.stages >= MIN_STAGES:
                    yield choice
            elif kernel == "wgmma_split_tail":
                if min(rows, columns) > BY_64:
                    yield choice
            else:
                if kernel in STEPS:
                    yield choice
                for parts in splits:
                    yield replace(choice, splits=parts)


def _fewest(extent: int, together: int, sizes: Sequence[int]) -> set[int]:
    """Return, for each number of tiles that cover an extent, the smallest of a tile's extents."""
    smallest: dict[int, int] = {}
    for size in sizes:
        smallest.setdefault(-(-extent // (size * together)), size)
    return set(smallest.values())


@cache
def _times_us(kernel: str, problem: Problem, multiprocessors: int) -> Mapping[Choice, float]:
    costs = (OVERLAPPED_COSTS if kernel in STEPS else COSTS)[9, 0]
    return {
        choice: predicted_us(choice, problem, multiprocessors, costs)
        for choice in choices(kernel, problem)
    }


@cache
def ranked(kernel: str, problem: Problem, multiprocessors: int) -> tuple[Choice, ...]:
    """Return a kernel's configurations for a problem, the fastest by the model first."""
    times = _times_us(kernel, problem, multiprocessors)
    return tuple(sorted(times, key=times.__getitem__))


@cache
def picked(
    kernels: tuple[str, ...], problem: Problem, multiprocessors: int
) -> Mapping[str, list[Choice]]:
    """Return the configurations of each kernel that are picked of all kernels' by the model.

    Each kernel has one, so that `--tiles auto` always measures it.
    """
    every = [
        (time_us, name, choice)
        for name in kernels
        for choice, time_us in _times_us(name, problem, multiprocessors).items()
    ]
    every.sort(key=lambda entry: entry[0])
    return first_together(((name, choice) for _, name, choice in every), kernels)


def first_together(
    ranked_together: Iterable[tuple[str, Item]], kernels: Collection[str]
) -> dict[str, list[Item]]:
    """Return what is picked of all kernels' items, each with its kernel, the fastest first.

    The first `PICKS` times the number of kernels are picked, and a kernel's first item anyway.
    """
    of_kernel: dict[str, list[Item]] = {name: [] for name in kernels}
    for place, (name, item) in enumerate(ranked_together):
        if place < PICKS * len(kernels) or not of_kernel[name]:
            of_kernel[name].append(item)
    return of_kernel


def picks(kernel: str) -> Callable[[Problem, int], tuple[str, ...]]:
    """Return the function that picks configurations of a kernel, as `CudaVariant.auto_tiles`."""
    kernels = (kernel,) if kernel in STEPS else KERNELS_OF_16_BITS

    def of_problem(problem: Problem, multiprocessors: int) -> tuple[str, ...]:
        return tuple(map(str, picked(kernels, problem, multiprocessors)[kernel]))

    return of_problem


KERNELS_BY_8 = ("wgmma_fitted", "wgmma_pingpong")
"""The kernels whose rows come by 8, and whose clusters have up to 8 blocks."""

KERNELS_OF_16_BITS = (*KERNELS_BY_8, "wgmma_split_cluster", "wgmma_split_tail")
"""The kernels for 16 bits that the model covers."""

KERNELS = (*KERNELS_OF_16_BITS, *STEPS)
"""The kernels that the model covers."""
