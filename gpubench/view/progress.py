"""How far a sweep is, on stderr: a live line in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from gpubench.measure.executor import Executor
from gpubench.model import Point, Status
from gpubench.row import Row
from gpubench.view.tables import console, milliseconds

PLAIN_EVERY_S = 5.0
"""Between plain lines, so that a log stays readable."""


REFRESHES_PER_S = 4
"""Enough for an eye, little for the machine that is measuring."""


class LiveProgress:
    """Two lines that stay where they are, one for the way gone, one for what was found.

    A bar, the time left and the point being measured; below, the fastest of its size so far, and
    the clock and temperature of the last point.
    """

    def __init__(self) -> None:
        self._console = console(stderr=True)
        fixed, rest = Column(no_wrap=True), Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self._progress = Progress(
            BarColumn(bar_width=16),
            MofNCompleteColumn(table_column=fixed),
            TextColumn(
                "{task.fields[left]}",
                markup=False,
                table_column=Column(no_wrap=True, min_width=len("12:34 left")),
            ),
            TextColumn("{task.description}", markup=False, table_column=rest),
            console=self._console,
            expand=True,  # what does not fit is cut from the last column
        )
        self._found = Text(no_wrap=True, overflow="ellipsis", style="dim")
        self._live = Live(
            Group(self._progress, self._found),
            console=self._console,
            transient=True,
            refresh_per_second=REFRESHES_PER_S,
        )
        self._task: TaskID | None = None
        self._rounds = 1
        self._best: dict[tuple[object, ...], Row] = {}

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def planned(self, executor: Executor, points: int, rounds: int) -> None:
        """Name the device and start the bar."""
        for line in (heading(executor, points, rounds), *executor.notices):
            self._console.print(line, markup=False)
        self._rounds = rounds
        self._best.clear()
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task("compiling", total=points * rounds, left="")

    def compiled(self, built: int) -> None:
        """Say how many kernels are built."""
        self._describe(f"compiling: {built} kernels")

    def measuring(self, point: Point, round_number: int, left_s: float) -> None:
        """Name the point and the time left."""
        prefix = f"round {round_number}/{self._rounds} " if self._rounds > 1 else ""
        self._describe(prefix + point.label, duration(left_s))

    def measured(self, one: Row) -> None:
        """Move the bar, name the fastest so far; a failure is printed, and stays."""
        if self._task is not None:
            self._progress.advance(self._task)
        if one.median_us is not None:
            problem = (one.op, one.size, one.dtype, one.cache, one.scope)
            best = min(self._best.get(problem, one), one, key=lambda row: row.median_us or 0.0)
            self._best[problem] = best
            self._found.plain = found(best, one)
        if one.status in {Status.WRONG, Status.ERROR}:
            self._console.print(_failure(one), style="red", markup=False)

    def _describe(self, text: str, left: str = "") -> None:
        if self._task is not None:
            self._progress.update(self._task, description=text, left=left)


class PlainProgress:
    """Plain lines: the heading, one every few seconds, and every failure."""

    def __init__(self) -> None:
        self._console = console(stderr=True)
        self._last = 0.0
        self._done, self._total = 0, 0
        self._left_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def planned(self, executor: Executor, points: int, rounds: int) -> None:
        """Name the device."""
        self._done, self._total = 0, points * rounds
        for line in (heading(executor, points, rounds), *executor.notices):
            self._line(line)

    def compiled(self, built: int) -> None:
        """Say how many kernels are built, now and then."""
        self._now_and_then(f"compiling: {built} kernels")

    def measuring(self, _point: Point, _round_number: int, left_s: float) -> None:
        """Remember the time left: `measured` speaks."""
        self._left_s = left_s

    def measured(self, one: Row) -> None:
        """Report a failure always, a time now and then."""
        self._done += 1
        if one.status in {Status.WRONG, Status.ERROR}:
            self._line(_failure(one))
        elif one.median_us is not None:
            self._now_and_then(
                f"[{self._done}/{self._total}] {one.label}: "
                f"{milliseconds(one.median_us)} ms; {duration(self._left_s)}"
            )

    def _now_and_then(self, text: str) -> None:
        if time.monotonic() - self._last >= PLAIN_EVERY_S:
            self._line(text)

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
        self._last = time.monotonic()


def progress() -> LiveProgress | PlainProgress:
    """Live where stderr is a terminal."""
    return LiveProgress() if console(stderr=True).is_terminal else PlainProgress()


def duration(left_s: float) -> str:
    """`1:05 left`; nothing while it is not known."""
    return f"{int(left_s) // 60}:{int(left_s) % 60:02} left" if left_s else ""


def found(best: Row, last: Row) -> str:
    """The fastest of a size, and the state of the device: `fastest at 1024 float32: …`."""
    name = " ".join(filter(None, (best.variant, best.tile)))
    parts = [f"fastest at {best.size} {best.dtype}: {name}, {milliseconds(best.median_us)} ms"]
    if last.sm_mhz is not None:
        parts.append(f"{last.sm_mhz:.0f} MHz")
    if last.temperature_c is not None:
        parts.append(f"{last.temperature_c:.0f} °C")
    return ", ".join(parts)


def heading(executor: Executor, points: int, rounds: int) -> str:
    """What runs where: `NVIDIA H200 (cuda:0): 256 points, 3 rounds`."""
    device = executor.device
    where = f"cuda:{device.index}" if device.backend == "cuda" else "CPU"
    times = f", {rounds} rounds" if rounds > 1 else ""
    return f"{device.name} ({where}): {points} points{times}"


def _failure(one: Row) -> str:
    return f"{one.status}: {one.label}: {one.reason}"
