"""Progress on stderr: live lines in a terminal, elsewhere plain lines in a log."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from gpubench.engine.pool import Watcher
from gpubench.model import Measurement, Status
from gpubench.plan.schedule import Estimate, Visit, minutes
from gpubench.text import counted
from gpubench.view.tables import console

if TYPE_CHECKING:
    from gpubench.engine.pool import Pool
    from gpubench.engine.prepare import Job

PLAIN_EVERY_S = 5.0
"""Minimum time between plain lines, so that a log stays readable."""

REFRESHES_PER_S = 4
"""Refresh rate of the live lines. A higher rate would disturb the measurements."""


class SweepProgress(Watcher):
    """The notes, the heading, each failure, and the point that is measured now.

    In a terminal the point is in a line that is updated in place, with a bar and the time left.
    Elsewhere it is a plain line every few seconds.
    """

    def __init__(self) -> None:
        self._console = console(stderr=True)
        one_line = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self._bar = Progress(
            BarColumn(bar_width=16),
            TextColumn("{task.description}", markup=False, table_column=one_line),
            console=self._console,
            expand=True,  # the last column is cut if the line is too long
            transient=True,
            refresh_per_second=REFRESHES_PER_S,
        )
        self._task = self._bar.add_task("")
        self._started, self._last = monotonic(), 0.0
        self._done, self._total = 0, 0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar.live.is_started:
            self._bar.stop()

    def planned(self, job: Job, pool: Pool, visits: int, foreseen: Estimate) -> None:
        """Print the notes and the heading, and start the bar."""
        for line in _opening(job, pool, visits, foreseen):
            self._line(line)
        self._done, self._total = 0, visits

    def compiled(self, kernels: int) -> None:
        """Show the number of compiled kernels."""
        self._show(f"compiling: {counted(kernels, 'kernel')}")

    def measuring(self, visit: Visit) -> None:
        """Show the point and the time left."""
        if visit.visits_left:  # points that failed have no more visits
            self._total = self._done + visit.visits_left
        left = times(monotonic() - self._started, visit.left_s)
        point = f"{visit.name} {visit.point.label}".strip()
        self._show(f"[{self._done + 1}/{self._total}] {left}; {point}")

    def measured(self, measurement: Measurement) -> None:
        """Count the visit, and print a failure as a line."""
        if measurement.status == Status.ELIMINATED:
            return  # decided without a launch
        self._done += 1
        if measurement.reason and measurement.status != Status.SKIPPED:
            self._line(
                f"{measurement.status}: {measurement.point.label}: {measurement.reason}", "red"
            )

    def _show(self, text: str) -> None:
        if self._bar.live.is_started:
            self._bar.update(self._task, description=text, total=self._total, completed=self._done)
        elif monotonic() - self._last >= PLAIN_EVERY_S:
            self._line(text)

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)
        self._last = monotonic()


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step of a command.

    In a terminal it is a line that is updated in place; elsewhere a plain line every few seconds.
    """
    screen, last_s = console(stderr=True), monotonic()

    def show(step: str) -> None:
        nonlocal last_s
        status.update(Text(step))
        if not screen.is_terminal and monotonic() - last_s >= PLAIN_EVERY_S:
            screen.print(Text(step), soft_wrap=True)
            last_s = monotonic()

    with screen.status("") as status:
        yield show


def times(elapsed_s: float, left_s: float) -> str:
    """Return `0:12 elapsed, 1:05 left`, or only the elapsed time if the time left is unknown."""
    left = f", {minutes(left_s)} left" if left_s else ""
    return f"{minutes(math.floor(elapsed_s))} elapsed{left}"


def _opening(job: Job, pool: Pool, visits: int, foreseen: Estimate) -> tuple[str, ...]:
    """Return the notes on the job and the pool, and what is measured where.

    The last line is like `NVIDIA H200 (cuda:0): 256 points, 5 rounds; 85 kernels …, about 1:05`.
    """
    points = len(job.points)
    rounds = f", {visits // points} rounds" if points and visits > points else ""
    heading = f"{pool.device.name} ({pool.label}): {counted(points, 'point')}{rounds}; {foreseen}"
    return (*pool.notices, *job.notes, heading)
