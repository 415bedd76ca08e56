"""Each problem's fastest kernel and fastest library in turns at the power limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpubench.engine.pairs import PAIR_S
from gpubench.engine.pool import LocalPool, Pool
from gpubench.engine.prepare import Job
from gpubench.model import PairedTimes, PointKey, State, Status
from gpubench.plan.registry import variants
from gpubench.results.row import Row
from gpubench.stats.pairs import ratio_of_pairs
from gpubench.view.numbers import number
from gpubench.view.row_tables import Column, best_of, rows_table
from gpubench.view.tables import Table, console


def rivals_of(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return the fastest kernel and the fastest library of each sustained problem."""
    libraries = {
        variant.name for variant in variants() if variant.name == variant.baseline or variant.tunes
    }
    pairs: list[tuple[Row, Row]] = []
    problems: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.status == Status.OK and row.state == State.SUSTAINED:
            problems.setdefault(row.problem_key, []).append(row)
    for measured in problems.values():
        sides = [[row for row in measured if (row.variant in libraries) == at] for at in (0, 1)]
        if all(sides):
            pairs.append((best_of(sides[0]), best_of(sides[1])))
    return pairs


def pairs_s(job: Job) -> float:
    """Return the expected seconds of `add_pairs` on one device."""
    sustained = {point.problem_key for point in job.points if point.state == State.SUSTAINED}
    return PAIR_S * len(sustained)


def add_pairs(job: Job, pool: Pool, rows: Sequence[Row]) -> list[Row]:
    """Measure the fastest kernel and library of each problem in turns, and return all rows.

    The columns `pair_…` of the kernels' rows are filled. A line on stderr names each pair that
    cannot be measured. Ctrl-C ends the measurement, and keeps the pairs so far.
    """
    screen = console(stderr=True)
    measured: dict[PointKey, Row] = {}
    pairs = rivals_of(rows)
    if not pairs:
        return list(rows)
    if not isinstance(pool, LocalPool):
        screen.print("no pairs in turns: they need one device, without --on", markup=False)
        return list(rows)
    pool.renew()  # the pairs are measured in a process without earlier operands
    try:
        for count, (kernel, library) in enumerate(pairs, start=1):
            points = job.point_of(kernel.key), job.point_of(library.key)
            if points[0] is None or points[1] is None:
                continue
            screen.print(f"in turns: pair {count} of {len(pairs)}, {kernel.label}", markup=False)
            times = pool.measure_pairs(points[0], points[1])
            if isinstance(times, str):
                screen.print(f"{kernel.label} in turns: {times}", markup=False, soft_wrap=True)
            else:
                measured[kernel.key] = _filled(kernel, library, times)
    except KeyboardInterrupt:
        screen.print("interrupted: the pairs so far are kept", markup=False)
    return [measured.get(row.key, row) for row in rows]


def _filled(kernel: Row, library: Row, times: PairedTimes) -> Row:
    ratio = ratio_of_pairs(times.library_times_us, times.times_us)
    return replace(
        kernel,
        pair_library=library.kernel,
        pair_ratio=ratio.ratio,
        pair_ratio_low=ratio.low,
        pair_ratio_high=ratio.high,
        pairs=len(times.times_us),
        pair_joules=times.joules,
        pair_library_joules=times.library_joules,
    )


def pairs_table(rows: Sequence[Row]) -> Table | None:
    """Return the table of the pairs; None without a pair."""
    paired = [row for row in rows if row.pairs]
    columns = [
        Column("size", lambda row: row.size, is_text=True),
        Column("mode", lambda row: row.compute_mode, is_text=True),
        Column("kernel", lambda row: row.kernel, is_text=True),
        Column("library", lambda row: row.pair_library or "", is_text=True),
        Column("ratio", lambda row: f"{row.pair_ratio or 0:.3f}"),
        Column("95 %", _interval),
        Column("J", lambda row: number(row.pair_joules, 4)),
        Column("J, library", lambda row: number(row.pair_library_joules, 4)),
    ]
    return rows_table(paired, columns) if paired else None


def _interval(row: Row) -> str:
    return f"{row.pair_ratio_low or 0:.3f} .. {row.pair_ratio_high or 0:.3f}"
