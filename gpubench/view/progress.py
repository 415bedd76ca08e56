"""Shows progress on stderr, as a live line in a terminal, or as plain lines in a log."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING, Self

from rich.text import Text

from gpubench.engine.pool import Watcher
from gpubench.model import Measurement, Status
from gpubench.plan.schedule import Estimate, Visit, minutes
from gpubench.text import counted
from gpubench.view.tables import console

if TYPE_CHECKING:
    from gpubench.engine.pool import Pool
    from gpubench.engine.prepare import Job

PLAIN_EVERY_S = 5.0  # minimum time in seconds between two plain lines, so that a log stays readable

REFRESHES_PER_S = 4
"""Number of refreshes of the live line per second. A higher number would disturb the
measurements."""


class Steps:
    """Shows the current step of a command.

    In a terminal, the step is a line that is updated in place. In a log, a plain line is printed
    every few seconds.
    """

    def __init__(self) -> None:
        self._console = console(stderr=True)
        self._live = self._console.status("", refresh_per_second=REFRESHES_PER_S)
        self._last_s = monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:  # a thread refreshes the line
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, step: str) -> None:
        """Show `step` as the current step."""
        self._live.update(Text(step[: self._console.width - 2]))
        if not self._console.is_terminal and monotonic() - self._last_s >= PLAIN_EVERY_S:
            self.line(step)

    def line(self, text: str, style: str = "") -> None:
        """Print a line that is not updated later."""
        self._console.print(Text(text, style=style), soft_wrap=True)
        self._last_s = monotonic()


class SweepProgress(Steps, Watcher):
    """Shows the notes, the heading, each failure, and the current point as the step."""

    def __init__(self) -> None:
        super().__init__()
        self._started_s = monotonic()
        self._done, self._total = 0, 0

    def planned(self, job: Job, pool: Pool, visits: int, foreseen: Estimate) -> None:
        """Print the notes and the heading, and reset the count of visits.

        The heading is like `NVIDIA H200 (cuda:0): 256 points, 5 rounds; 85 kernels …, about 1:05`.
        """
        points, where = len(job.points), f"{pool.device.name} ({pool.label})"
        rounds = f", {visits // points} rounds" if points and visits > points else ""
        heading = f"{where}: {counted(points, 'point')}{rounds}; {foreseen}"
        for line in (*pool.notices, *job.notes, heading):
            self.line(line)
        self._done, self._total = 0, visits

    def compiled(self, kernels: int) -> None:
        """Show the number of compiled kernels."""
        self.show(f"compiling: {counted(kernels, 'kernel')}")

    def measuring(self, visit: Visit) -> None:
        """Show the point that is measured, and the remaining time."""
        if visit.visits_left:  # a failed point has no more visits
            self._total = self._done + visit.visits_left
        left = times(monotonic() - self._started_s, visit.left_s)
        point = f"{visit.name} {visit.point.label}".strip()
        self.show(f"[{self._done + 1}/{self._total}] {left}; {point}")

    def measured(self, measurement: Measurement) -> None:
        """Count the visit. If the measurement failed, print a line."""
        if measurement.status == Status.ELIMINATED:
            return  # the configuration was eliminated without a launch
        self._done += 1
        if measurement.reason and measurement.status != Status.SKIPPED:
            self.line(
                f"{measurement.status}: {measurement.point.label}: {measurement.reason}", "red"
            )


def times(elapsed_s: float, left_s: float) -> str:
    """Return a text such as `0:12 elapsed, 1:05 left`.

    If the remaining time is unknown, return only the elapsed time.
    """
    left = f", {minutes(left_s)} left" if left_s else ""
    return f"{minutes(math.floor(elapsed_s))} elapsed{left}"
