"""Measures each problem's fastest kernel and fastest library in turns, at the power limit."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import geometric_mean

from gpubench.engine.measure.pairs import PAIR_S, PROCESSES, mean_joules
from gpubench.engine.pool import LocalPool, Pool
from gpubench.engine.prepare import Job
from gpubench.model import PairedTimes, PointKey, State, Status
from gpubench.plan.registry import libraries
from gpubench.results.row import Row
from gpubench.stats.pairs import ratio_of_pairs
from gpubench.view.numbers import number
from gpubench.view.row_tables import Column, best_of_each, by_problem, rows_table
from gpubench.view.tables import Table, say


def is_library(row: Row) -> bool:
    """Return whether a row has the time of a library, and not the time of a kernel."""
    return row.variant in libraries()


def rivals_of(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return the fastest kernel and the fastest library of each problem.

    Only rows in the state `sustained` count. A problem is left out if it has no kernel or no
    library.
    """
    timed = [row for row in rows if row.status == Status.OK and row.state == State.SUSTAINED]
    return [
        (sides[False], sides[True])
        for measured in by_problem(timed)
        if len(sides := best_of_each(measured, is_library)) > 1
    ]


def pairs_s(job: Job) -> float:
    """Return the expected duration of `add_pairs` on one device, in seconds."""
    sustained = {point.problem_key for point in job.points if point.state == State.SUSTAINED}
    return PAIR_S * len(sustained)


def add_pairs(job: Job, pool: Pool, rows: Sequence[Row]) -> list[Row]:
    """Measure each problem's fastest kernel and fastest library in turns, and return all rows.

    The columns `pair_…` of the kernels' rows are filled. Each pair is measured in several
    processes. The interval is computed from the ratios of these processes. A line on stderr names
    each pair that cannot be measured. Ctrl-C ends the measurement. The pairs that at least two
    processes measured are kept.
    """
    times_by_pair: dict[PointKey, list[PairedTimes]] = {}
    pairs = [
        (kernel, library, point, library_point)
        for kernel, library in rivals_of(rows)
        if (point := job.point_of(kernel.key)) and (library_point := job.point_of(library.key))
    ]
    if not pairs:
        return list(rows)
    if not isinstance(pool, LocalPool):
        say(
            "kernels and libraries are not measured in turns, which needs one device: leave out "
            "--on",
            err=True,
        )
        return list(rows)
    try:
        for process in range(1, PROCESSES + 1):
            pool.renew()  # the pairs are measured in a process without earlier operands
            for count, (kernel, _, point, library_point) in enumerate(pairs, start=1):
                times_of_pair = times_by_pair.setdefault(kernel.key, [])
                if len(times_of_pair) < process - 1:
                    continue  # the pair failed in an earlier process
                turn = f"pair {count} of {len(pairs)}, process {process} of {PROCESSES}"
                say(f"measuring in turns: {turn}, {kernel.label}", err=True)
                times = pool.executor.measure_pairs(point, library_point)
                if isinstance(times, str):
                    say(f"{kernel.label} was not measured in turns: {times}", err=True)
                else:
                    times_of_pair.append(times)
    except KeyboardInterrupt:
        say("interrupted: pairs that at least two processes measured are kept", err=True)
    filled = {
        kernel.key: _filled(kernel, library, series)
        for kernel, library, *_ in pairs
        if len(series := times_by_pair.get(kernel.key, [])) > 1
    }
    return [filled.get(row.key, row) for row in rows]


def _filled(kernel: Row, library: Row, processes: Sequence[PairedTimes]) -> Row:
    """Return the kernel's row, with the columns that the pairs of at least two processes fill."""
    ratio = ratio_of_pairs(
        [geometric_mean(times.library_times_us) for times in processes],
        [geometric_mean(times.times_us) for times in processes],
    )
    return replace(
        kernel,
        pair_library=library.kernel,
        pair_ratio=ratio.ratio,
        pair_ratio_low=ratio.low,
        pair_ratio_high=ratio.high,
        pairs=sum(len(times.times_us) for times in processes),
        pair_joules=mean_joules([times.joules for times in processes]),
        pair_library_joules=mean_joules([times.library_joules for times in processes]),
    )


def pairs_table(rows: Sequence[Row]) -> Table | None:
    """Return the table of the pairs, or None if no pair was measured."""

    def interval(row: Row) -> str:
        return f"{row.pair_ratio_low or 0:.3f} .. {row.pair_ratio_high or 0:.3f}"

    columns = [
        Column("size", lambda row: row.size, is_text=True),
        Column("mode", lambda row: row.compute_mode, is_text=True),
        Column("kernel", lambda row: row.kernel, is_text=True),
        Column("library", lambda row: row.pair_library or "", is_text=True),
        Column("ratio", lambda row: f"{row.pair_ratio or 0:.3f}"),
        Column("95 %, processes", interval),
        Column("J", lambda row: number(row.pair_joules, 4)),
        Column("J, library", lambda row: number(row.pair_library_joules, 4)),
    ]
    paired = [row for row in rows if row.pairs]
    return rows_table(paired, columns) if paired else None
