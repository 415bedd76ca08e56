"""`gpubench tune --table`: finds the fastest configuration of `--tiles auto` for each problem.

The first round visits each configuration briefly. Then the configurations that may be the fastest
are measured as in a sweep, in new processes, together with the libraries.
"""

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from gpubench.commands.tune.run import Settings, libraries_beside
from gpubench.commands.tune.schedule import visits_of
from gpubench.engine.pool import Pool, Watcher
from gpubench.engine.prepare import Job, prepare
from gpubench.engine.run import Outcome, run
from gpubench.errors import UsageError
from gpubench.files import Output
from gpubench.grouping import grouped
from gpubench.model import LAYOUTS, OPERATIONS, Device, Problem, Size, Status
from gpubench.model.precision import bytes_of_element
from gpubench.plan.problems import ListedProblem, list_paths
from gpubench.plan.ranges import require_ending
from gpubench.plan.registry import choose, libraries
from gpubench.plan.schedule import VISIT_S, InRounds
from gpubench.plan.sweep import AUTO_TILES, Sweep
from gpubench.results.result_file import ResultFile
from gpubench.results.row import Row
from gpubench.results.tile_table import NAMES, TileRow
from gpubench.stats.intervals import MIN_ROUNDS
from gpubench.stats.pairs import Ratio, ratio_of_rounds

NEAR = 1.05
"""A configuration is measured after round 1 only if it takes at most this multiple of the fastest
time."""

MAX_NEAR = 8  # maximum number of configurations of a problem that are measured after round 1
LIBRARIES = 2  # usual number of libraries of a problem
MIN_NEAR = 2  # the smallest value to which a budget reduces MAX_NEAR
MAX_TIED = 2  # maximum excess of a tied time over the fastest time, in multiples of `within`

LAUNCH_LIMIT_S = 1.0  # default of --launch-limit; no fastest kernel takes longer
ROW_BYTES = 16  # tensor copies and wide loads need rows whose size is a multiple of this

SINGLE = {"caches": "cache", "launches": "launches", "scopes": "scope", "operands": "operands"}
"""Fields of a sweep that take one value, because each problem has one row in the table. Each field
has the name of its option."""

Asked = tuple[Size, str]
"""Size and dtype of a problem that the user listed."""

Key = tuple[Size, str, str]
"""Size, dtype and layout of a measured problem."""

Timed = Mapping[Key, tuple[list[Row], list[Row]]]
"""Maps each problem to its timed kernels and its timed libraries. Both lists are sorted by time."""


@dataclass(frozen=True, kw_only=True)
class Tabled:
    """The result of `tune --table`."""

    first: Outcome  # the first round
    again: Outcome | None  # the later rounds; None if the first round was interrupted
    rows: list[TileRow]  # one for each problem that was timed
    missing: list[str]  # the sizes of the problems that were not timed
    wall_s: float


def table_job(settings: Settings, device: Device) -> tuple[Job, dict[Asked, Size]]:
    """Return the job of the first round, and each problem's padded size.

    Raises UsageError for options that `--table` cannot use.
    """
    sweep = settings.sweep
    for name, option in SINGLE.items():
        if len(getattr(sweep, name)) > 1:
            raise UsageError(f"--{option}: name one value with --table")
    if not sweep.sizes:
        raise UsageError("--table: add --sizes, such as 1024,2048 or model.csv")
    if sweep.timing.rounds < MIN_ROUNDS:
        raise UsageError(f"--rounds: --table needs at least {MIN_ROUNDS} rounds for its intervals")
    timing = visits_of(sweep.timing)
    if "launch_limit" not in sweep.options:
        timing = replace(timing, launch_limit_s=LAUNCH_LIMIT_S)
    kernels = choose(sweep.op, device.backend, sweep.variants, sweep.kernels)
    beside = libraries_beside(kernels, sweep)
    # The user did not name these variants, so a dtype that they lack needs no message.
    unnamed = beside if sweep.variants else [*kernels, *beside]
    fitting = [each.name for each in unnamed if set(each.dtypes) & set(sweep.dtypes)]
    problems = sweep.problems or tuple(
        _listed(sweep.op, size, dtype) for dtype in sweep.dtypes for size in sweep.sizes
    )
    asked = {(each.size, each.dtype): padded_size(sweep, each) for each in problems}
    padded = dict.fromkeys((size, dtype) for (_, dtype), size in asked.items())
    problems += tuple(_listed(sweep.op, *key) for key in padded if key not in asked)
    first = replace(
        sweep,
        variants=tuple(dict.fromkeys((*sweep.variants, *fitting))),
        tiles=(AUTO_TILES,),
        problems=problems,
        sizes=tuple(dict.fromkeys(each.size for each in problems)),
        timing=timing,
        options={**sweep.options, "tiles": AUTO_TILES},
    )
    return prepare(first, device, strategy=InRounds(whole_problems=True)), asked


def _listed(op: str, size: Size, dtype: str) -> ListedProblem:
    m, n, k, *further = size
    name = Problem.of(op, size, dtype).size
    return ListedProblem(name=name, m=m, n=n, k=k, further=tuple(further), dtype=dtype)


def padded_size(sweep: Sweep, listed: ListedProblem) -> Size:
    """Return the size, padded so that rows of matrices in memory are multiples of 16 bytes."""
    problem = Problem.of(sweep.op, listed.size, listed.dtype)
    if sweep.layouts and not problem.precision.column_major:  # 8 bits have a fixed layout
        problem = replace(problem, column_major=LAYOUTS[sweep.layouts[0]])
    operation, extents = problem.operation, dict(problem.extents)
    if not operation.has_layouts:  # zeros may change the result of another operation
        return listed.size
    arrays = (*operation.inputs, operation.output)
    for array, kind, by_columns in zip(arrays, problem.types, problem.by_columns, strict=True):
        if array.name in operation.matrices:
            name = array.dimensions[0 if by_columns else 1]
            step = ROW_BYTES // bytes_of_element(kind)
            extents[name] = math.ceil(extents[name] / step) * step
    return operation.size_of(extents.values())


def open_table(path: Path, sweep: Sweep, *, force: bool) -> Output:
    """Return the table's file. Raises UsageError if this file must not be written."""
    for file in (*list_paths(sweep.options.get("sizes", "")), sweep.output):
        if file and os.path.realpath(path) == os.path.realpath(file):
            raise UsageError(f"--table: {path} is also the file of --sizes or --output")
    if sweep.output:
        Output(sweep.output, overwrite=force)  # raises before anything is measured
    require_ending("--table", path, ".csv")
    return Output(path, overwrite=force, flag="--table")


def make_table(
    settings: Settings, pool: Pool, watcher: Watcher, *, output: Path, force: bool = False
) -> Tabled:
    """Measure configurations, write the rows to `output`, and return the choice for each problem.

    Raises UsageError for options that `--table` cannot use, and if nothing was timed.
    """
    began_s = perf_counter()
    job, asked = table_job(settings, pool.device)
    first = run(job, pool, watcher)
    if first.interrupted:
        return Tabled(first=first, again=None, rows=[], missing=[], wall_s=first.wall_s)
    timing, max_near = settings.sweep.timing, MAX_NEAR
    if timing.budget_s is not None:
        left_s = max(1.0, timing.budget_s - (perf_counter() - began_s))
        visits = left_s / timing.rounds / len(job.sweep.problems) / VISIT_S
        max_near = min(MAX_NEAR, max(MIN_NEAR, int(visits) - LIBRARIES))
        is_short = visits < MIN_NEAR + LIBRARIES and "rounds" not in settings.sweep.options
        rounds = MIN_ROUNDS if is_short else timing.rounds
        timing = replace(timing, budget_s=left_s, rounds=rounds)
    keys = {row.key for row in _staying(first.rows, max_near)}
    if not keys:
        why = next((f": {row.label}: {row.reason}" for row in first.rows if row.reason), "")
        raise UsageError(f"--table: nothing was timed{why}")
    pool.renew()
    confirmation = prepare(
        replace(job.sweep, timing=timing),
        pool.device,
        keep=lambda point: point.key in keys,
        strategy=InRounds(whole_problems=True),
    )
    file = ResultFile(output, overwrite=force)
    again = run(confirmation, pool, watcher, file)
    file.remove_partial()  # a table is not resumed
    names = libraries()
    timed_rows = (row for row in first.rows if row.median_us and row.variant not in names)
    counts = Counter(map(_key, timed_rows))
    measured = [] if again.interrupted else again.rows
    rows = table_rows(measured, asked, counts, settings.racing.within)
    timed = {(row.numbers, row.dtype) for row in rows}
    return Tabled(
        first=first,
        again=again,
        rows=rows,
        missing=[_listed(job.sweep.op, *key).name for key in asked if key not in timed],
        wall_s=perf_counter() - began_s,
    )


def _key(row: Row) -> Key:
    return row.numbers, row.compute_mode, row.layout


def _time_us(row: Row) -> float:
    return row.median_us or math.inf


def _timed(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the timed kernels and the timed libraries of a problem, both sorted by time."""
    timed = [row for row in rows if row.status == Status.OK and row.median_us]
    timed.sort(key=_time_us)
    names = libraries()
    kernels = [row for row in timed if row.variant not in names]
    return kernels, [row for row in timed if row.variant in names]


def _staying(rows: Sequence[Row], max_near: int) -> Iterator[Row]:
    """Yield the rows of libraries and of nearly fastest configurations, to measure them again."""
    for of_problem in grouped(rows, _key).values():
        kernels, beside = _timed(of_problem)
        yield from beside
        for row in kernels[:max_near]:
            if _time_us(row) <= NEAR * _time_us(kernels[0]):
                yield row


def _ratio(row: Row, other: Row) -> Ratio:
    """Return the ratio of two rows' times, with the interval that their rounds give."""
    ratio = _time_us(row) / _time_us(other)
    paired = ratio_of_rounds(row.round_medians_us, other.round_medians_us)
    low, high = (paired.low, paired.high) if paired else (ratio, ratio)
    return Ratio(ratio, min(low, ratio), max(high, ratio))


def _configuration(row: Row) -> tuple[str, str]:
    return row.variant, row.tile


def covering(ties: Sequence[Sequence[Row]]) -> list[Row]:
    """Return one row of each group, chosen so that few different configurations are needed.

    Each group has its fastest row first. Configurations are chosen one after the other. Each choice
    is the configuration that occurs in most of the remaining groups. Among several such
    configurations, the choice has the smallest sum of relative times. A relative time is divided by
    the fastest time of the group.
    """
    left, taken = list(ties), []
    while left:
        ratios: dict[tuple[str, str], list[float]] = {}
        for group in left:
            for row in group:
                ratio = _time_us(row) / _time_us(group[0])
                ratios.setdefault(_configuration(row), []).append(ratio)
        taken.append(min(ratios, key=lambda each: (-len(ratios[each]), sum(ratios[each]), each)))
        left = [group for group in left if taken[-1] not in map(_configuration, group)]
    return [next(row for row in group if _configuration(row) in taken) for group in ties]


def table_rows(
    rows: Sequence[Row], asked: Mapping[Asked, Size], counts: Mapping[Key, int], within: float
) -> list[TileRow]:
    """Return the choice for each problem that was timed.

    `asked` has the padded size of each problem, and `counts` has the number of configurations of
    each problem.
    """
    timed: Timed = {key: _timed(of_problem) for key, of_problem in grouped(rows, _key).items()}
    ties: dict[Key, list[Row]] = {}
    for key, (kernels, beside) in timed.items():
        is_kernel = kernels and (not beside or _ratio(kernels[0], beside[0]).low <= 1 + within)
        if is_kernel and key[:2] in asked:
            # Kernels that are not shown to be slower than the fastest by more than the margin.
            ratios = [(row, _ratio(row, kernels[0])) for row in kernels]
            max_ratio = 1 + MAX_TIED * within
            ties[key] = [row for row, x in ratios if x.low <= 1 + within and x.ratio <= max_ratio]
    chosen = dict(zip(ties, covering([*ties.values()]), strict=True))
    return [
        _tile_row(
            chosen.get(key) or beside[0],
            kernels,
            beside,
            configurations=counts.get(key, 0),
            ties=len(ties.get(key, ())) or None,
            hint=_hint(key, asked[key[:2]], chosen.get(key) or beside[0], timed, within),
        )
        for key, (kernels, beside) in timed.items()
        if key[:2] in asked and (kernels or beside)
    ]


def _hint(key: Key, size: Size, choice: Row, timed: Timed, within: float) -> str | None:
    """Return advice such as `pad N to 1008` if the padded problem is shown to be faster."""
    kernels, beside = timed.get((size, *key[1:]), ([], []))
    if size == key[0] or not (kernels or beside):
        return None
    ratio = _ratio(choice, min([*kernels[:1], *beside[:1]], key=_time_us))
    if ratio.low <= 1 + within:
        return None
    operation = OPERATIONS[choice.op]
    new = operation.named(size)
    pairs = operation.named(key[0]).items()
    changes = [f"{name} to {new[name]}" for name, extent in pairs if extent != new[name]]
    return f"pad {', '.join(changes)}: {100 * (ratio.ratio - 1):.0f} % faster"


def _tile_row(
    choice: Row, kernels: Sequence[Row], beside: Sequence[Row], **columns: Any
) -> TileRow:
    kernel = choice if choice in kernels else next(iter(kernels), None)
    ratio = _ratio(beside[0], kernel) if beside and kernel else None
    columns |= {
        "dtype": choice.compute_mode,
        "library": beside[0].variant if beside else None,
        "library_us": beside[0].median_us if beside else None,
        "ratio": ratio and ratio.ratio,
        "ratio_low": ratio and ratio.low,
        "ratio_high": ratio and ratio.high,
    }
    same = {name: getattr(choice, name) for name in NAMES if name not in columns}
    return TileRow(**same, **columns)
