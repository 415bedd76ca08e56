"""The progress of a sweep on stderr: live lines in a terminal, elsewhere plain lines in a log."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from gpubench.engine.pool import Watcher
from gpubench.model import Health, Measurement, Point, Status
from gpubench.plan.schedule import Estimate, Visit, minutes
from gpubench.text import counted
from gpubench.view.numbers import time_text
from gpubench.view.tables import console

if TYPE_CHECKING:
    from gpubench.engine.pool import Pool
    from gpubench.engine.prepare import Job

PLAIN_EVERY_S = 5.0
"""Minimum time between plain lines, so that a log stays readable."""

REFRESHES_PER_S = 4
"""Refresh rate of the live lines. A higher rate would disturb the measurements."""


class LiveProgress(Watcher):
    """Two lines that are updated in place.

    The first line has a bar, the time left and the point being measured. The second line has the
    fastest kernel of its size so far, and the clock and temperature of the last point.
    """

    def __init__(self) -> None:
        self._console = console(stderr=True)
        count_column, status_column = (
            Column(no_wrap=True),
            Column(no_wrap=True, overflow="ellipsis", ratio=1),
        )
        self._progress = Progress(
            BarColumn(bar_width=16),
            MofNCompleteColumn(table_column=count_column),
            TextColumn(
                "{task.fields[left]}",
                markup=False,
                table_column=Column(no_wrap=True, min_width=len("12:34 elapsed, 12:34 left")),
            ),
            TextColumn("{task.description}", markup=False, table_column=status_column),
            console=self._console,
            expand=True,  # the last column is cut if the line is too long
        )
        self._fastest = Text(no_wrap=True, overflow="ellipsis", style="dim")
        self._live = Live(
            Group(self._progress, self._fastest),
            console=self._console,
            transient=True,
            refresh_per_second=REFRESHES_PER_S,
        )
        self._task: TaskID | None = None
        self._started = monotonic()
        self._best: dict[tuple[object, ...], tuple[float, Point]] = {}

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def planned(self, job: Job, pool: Pool, visits: int, foreseen: Estimate) -> None:
        """Print the notes and the heading, and start the bar."""
        for line in _opening(job, pool, visits, foreseen):
            self._console.print(line, markup=False, soft_wrap=True)
        self._best.clear()
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task("compiling", total=visits, left="")

    def compiled(self, kernels: int) -> None:
        """Show the number of compiled kernels."""
        self._describe(f"compiling: {counted(kernels, 'kernel')}")

    def measuring(self, visit: Visit) -> None:
        """Show the point and the time left."""
        if self._task is not None and visit.visits_left:  # points that failed have no more visits
            done = self._progress.tasks[0].completed
            self._progress.update(self._task, total=done + visit.visits_left)
        left = times(monotonic() - self._started, visit.left_s)
        self._describe(f"{visit.name} {visit.point.label}".strip(), left)

    def measured(self, measurement: Measurement) -> None:
        """Advance the bar, show the fastest kernel so far, and print a failure as a line."""
        if measurement.status == Status.ELIMINATED:
            return  # decided without a launch
        if self._task is not None:
            self._progress.advance(self._task)
        if measurement.series:
            point = measurement.point
            problem = (point.problem, point.cache, point.launches, point.scope)
            best_us, best = self._best.get(problem, (math.inf, point))
            if measurement.series.median_us < best_us:
                best_us, best = measurement.series.median_us, point
            self._best[problem] = best_us, best
            self._fastest.plain = fastest_text(best, best_us, measurement.after)
        if measurement.reason and measurement.status != Status.SKIPPED:
            self._console.print(_failure(measurement), style="red", markup=False)

    def _describe(self, text: str, left: str = "") -> None:
        if self._task is not None:
            self._progress.update(self._task, description=text, left=left)


class PlainProgress(Watcher):
    """Plain lines: the heading, a line every few seconds, and a line for each failure."""

    def __init__(self) -> None:
        self._console = console(stderr=True)
        self._last = 0.0
        self._done, self._total = 0, 0
        self._started = monotonic()
        self._left_s = 0.0
        self._name = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def planned(self, job: Job, pool: Pool, visits: int, foreseen: Estimate) -> None:
        """Print the notes and the heading."""
        self._done, self._total = 0, visits
        for line in _opening(job, pool, visits, foreseen):
            self._line(line)

    def compiled(self, kernels: int) -> None:
        """Print the number of compiled kernels, every few seconds."""
        self._now_and_then(f"compiling: {counted(kernels, 'kernel')}")

    def measuring(self, visit: Visit) -> None:
        """Keep the visit's name and the time left, which `measured` prints."""
        self._total = self._done + visit.visits_left if visit.visits_left else self._total
        self._left_s, self._name = visit.left_s, visit.name

    def measured(self, measurement: Measurement) -> None:
        """Print each failure, and a time every few seconds."""
        if measurement.status == Status.ELIMINATED:
            return  # decided without a launch
        self._done += 1
        if measurement.reason and measurement.status != Status.SKIPPED:
            self._line(_failure(measurement))
        elif measurement.series:
            what = f"{self._name} {measurement.point.label}".strip()
            self._now_and_then(
                f"[{self._done}/{self._total}] {what}: {time_text(measurement.series.median_us)}; "
                f"{times(monotonic() - self._started, self._left_s)}"
            )

    def _now_and_then(self, text: str) -> None:
        if monotonic() - self._last >= PLAIN_EVERY_S:
            self._line(text)

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
        self._last = monotonic()


def progress() -> LiveProgress | PlainProgress:
    """Return live progress if stderr is a terminal, and plain lines otherwise."""
    return LiveProgress() if console(stderr=True).is_terminal else PlainProgress()


def times(elapsed_s: float, left_s: float) -> str:
    """Return `0:12 elapsed, 1:05 left`, or only the elapsed time if the time left is unknown."""
    left = f", {minutes(left_s)} left" if left_s else ""
    return f"{minutes(math.floor(elapsed_s))} elapsed{left}"


def fastest_text(best: Point, best_us: float, health: Health) -> str:
    """Return the fastest kernel of a size and the state of the device."""
    problem = best.problem
    name = f"{best.variant.name} {best.tile or ''}".strip()
    parts = [f"fastest at {problem.size} {problem.dtype}: {name}, {time_text(best_us)}"]
    if health.sm_mhz is not None:
        parts.append(f"{health.sm_mhz:.0f} MHz")
    if health.temperature_c is not None:
        parts.append(f"{health.temperature_c:.0f} °C")
    return ", ".join(parts)


def _opening(job: Job, pool: Pool, visits: int, foreseen: Estimate) -> tuple[str, ...]:
    """Return the notes on the job and the pool, and what is measured where.

    The last line is like `NVIDIA H200 (cuda:0): 256 points, 5 rounds; 85 kernels …, about 1:05`.
    """
    points = len(job.points)
    rounds = f", {visits // points} rounds" if points and visits > points else ""
    heading = f"{pool.device.name} ({pool.label}): {counted(points, 'point')}{rounds}; {foreseen}"
    return (*pool.notices, *job.notes, heading)


def _failure(measurement: Measurement) -> str:
    return f"{measurement.status}: {measurement.point.label}: {measurement.reason}"
