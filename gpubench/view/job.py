"""Prints what a job will measure. After the job, prints the time of each phase and the files."""

from __future__ import annotations

import math
import shlex
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.text import Text

from gpubench.errors import INTERRUPTED, UsageError
from gpubench.grouping import grouped
from gpubench.plan.schedule import minutes
from gpubench.results.result_file import ResultFile, default_path
from gpubench.text import counted
from gpubench.view.numbers import spans, tile_order
from gpubench.view.tables import console, say, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpubench.engine.prepare import Job
    from gpubench.engine.run import Outcome

BEYOND = 1.1
"""A message is printed if the wall time of a sweep exceeds its budget by more than this factor."""

NOTHING_MEASURED = "nothing was measured, so existing files stay"
"""Message in place of the path of the results."""

MAX_NAMED = 3  # maximum number of kernels that are named in the message about a missing dtype


def print_plan(job: Job, ending: str, *, resume: Path | None = None, force: bool = False) -> None:
    """Print each variant's points, the skipped points with reasons, and the expected time.

    `ending` is the end of the output file's default name. Raises UsageError if `resume` is not
    None, and if a file to write exists and is not overwritten by `force`.
    """
    if resume:
        raise UsageError("--dry-run: leave out --resume, whose file already has the points")
    path = job.sweep.output or default_path(job.device.name, ending)
    ResultFile(path, samples=job.sweep.samples, overwrite=force).claim()
    how = "to race" if job.strategy.is_race else f"in {counted(job.sweep.timing.rounds, 'round')}"
    too_large = job.too_large()
    points = [point for point in job.points if point not in too_large]
    say(f"{job.device.name}: {counted(len(points), 'point')} {how}; nothing is run")
    listing = table("variant", "points", "tiles", left={"variant", "tiles"})
    skips = []
    sized = {point: f"{point.problem.size} {why}" for point, why in too_large.items()}
    reasons = {**job.planned, **sized}
    groups = grouped(reasons, lambda point: (point.variant.name, reasons[point]))
    for (name, reason), alike in groups.items():
        tiles = spans(sorted((str(point.tile) for point in alike if point.tile), key=tile_order))
        if reason is None:
            listing.add_row(name, str(len(alike)), tiles)
        else:
            skips.append(f"skipped: {f'{name} {tiles}'.strip()}: {reason}")
    console().print(listing)
    for skip in skips:
        say(skip, "yellow")
    for note in (*([without_dtypes(job.absent)] if job.absent else []), *job.notes):
        say(note)
    foreseen = job.forecast(points)
    say(f"\n{foreseen}; at least {minutes(foreseen.least_s)}")
    say(f"would write: {path}")


def conclude(outcome: Outcome, continued_by: Path | None = None) -> int:
    """Print the last lines of a command, and return the command's exit code.

    A file must have been requested.

    `continued_by` is the path to give to `--resume`, if it is not the path of the outcome.
    """
    if absent := outcome.job.absent:
        say(without_dtypes(absent), err=True)
    console(stderr=True).print(Text(where_time_went(outcome)))
    budget_s = outcome.job.sweep.timing.budget_s or math.inf
    if not outcome.interrupted and outcome.wall_s > BEYOND * budget_s:
        say(f"--budget {budget_s:g}s was exceeded, because it limits only sampling", err=True)
    if outcome.interrupted and (path := continued_by or outcome.path):
        say(
            "interrupted: what was measured is kept; --resume "
            f"{shlex.quote(str(path))} continues the sweep",
            err=True,
        )
    if outcome.path:
        say(f"\n{outcome.path}")
    else:
        say(NOTHING_MEASURED, err=True)
    if outcome.interrupted:
        return INTERRUPTED
    if outcome.saved:
        say(f"saved as {outcome.saved.parent.name}: {outcome.saved}", err=True)
    if not outcome.timed:
        say("no point was timed, so the command failed", err=True)
    return 0 if outcome.timed and not outcome.failed else 1


def without_dtypes(absent: Mapping[str, Sequence[str]]) -> str:
    """Return a message about kernels that lack a dtype, such as `left out: cpu_blas has no int32`.

    If more than `MAX_NAMED` kernels lack a dtype, the message has their number instead of their
    names.
    """
    parts = []
    for dtype, names in absent.items():
        listed = f"{len(names)} kernels" if len(names) > MAX_NAMED else ", ".join(names)
        parts.append(f"{listed} {'has' if len(names) == 1 else 'have'} no {dtype}")
    return f"left out: {'; '.join(parts)}"


def where_time_went(outcome: Outcome) -> str:
    """Return the wall time and the time of each phase, the longest phase first.

    An example is `56.6 s: sampling 39.6 s (70 %), compiling 3.1 s (5 %), …`.
    """
    phases = {**outcome.spent_s, "other": outcome.wall_s - sum(outcome.spent_s.values())}
    parts = [
        f"{name} {spent_s:.1f} s ({spent_s / outcome.wall_s:.0%})".replace("%)", " %)")
        for name, spent_s in sorted(phases.items(), key=itemgetter(1), reverse=True)
        if round(spent_s, 1) > 0
    ]
    return f"{outcome.wall_s:.1f} s: {', '.join(parts)}"
