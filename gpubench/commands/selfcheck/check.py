"""Times kernels of 2 µs to 2 ms by events and by CUPTI, and judges the launch gap.

The launch gap is the time per launch in a stream (events) minus the execution time (CUPTI). It is
the time that the device takes between two kernels. It is a property of the machine, so it must be
equal for all kernels. If it is not, one of the two timers is disturbed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.text import Text

from gpubench.backends import backends
from gpubench.engine.pool import local_pool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import run
from gpubench.errors import DeviceUnavailableError
from gpubench.model import Timer
from gpubench.options import read_sweep
from gpubench.results.row import Row
from gpubench.view.numbers import number
from gpubench.view.progress import progress
from gpubench.view.tables import Table, console, table

CHECKS = (
    {"variants": "shared_tile", "tiles": "16", "sizes": "64,128,256,512,1024,2048"},
    {"variants": "cublas", "sizes": "64,1024,2048"},
    {"variants": "naive", "tiles": "32", "sizes": "64,512"},
)

MAX_DEVIATION_US = 0.3  # a gap this close to the median of all gaps counts as equal to it
MAX_DEVIATION_OF_TIME = 0.01  # for long kernels, as clocks drift between the two measurements
MAX_GAP_US = 4.0  # a larger median gap means that the stream ran dry between launches


class Gap(NamedTuple):
    """The times of one kernel by both timers."""

    label: str
    events_us: float
    cupti_us: float

    @property
    def gap_us(self) -> float:
        """Time per launch beyond execution."""
        return self.events_us - self.cupti_us


class Verdict(NamedTuple):
    """Whether a machine's times can be trusted, in a sentence."""

    trusted: bool
    sentence: str


def run_selfcheck(device: str | None) -> int:
    """Print the gaps and the verdict. Return 0 if this machine's times can be trusted, or else 1.

    Raises DeviceUnavailableError without a GPU or without CUPTI.
    """
    rows: list[Row] = []
    if device is None:
        device = next(name for name, entry in backends().items() if Timer.CUPTI in entry.timers)
    try:
        device = read_sweep({"device": device}).device
        with progress() as watcher, local_pool(device, Timer.CUPTI) as pool:
            for options in CHECKS:
                sweep = read_sweep({**options, "device": device, "cache": "hot"})
                for timer in (Timer.EVENTS, Timer.CUPTI):
                    job = prepare(replace(sweep, timer=timer), pool.device)
                    rows += run(job, pool, watcher).rows
    except DeviceUnavailableError as error:
        raise DeviceUnavailableError(f"selfcheck compares two timers of a GPU: {error}") from error
    gaps = launch_gaps((row.label, row.timer, row.median_us) for row in rows if row.median_us)
    verdict = judge_gaps(gaps)
    screen = console()
    screen.print(gap_table(gaps))
    screen.print(f"\n{verdict.sentence}", soft_wrap=True)
    return 0 if verdict.trusted else 1


def launch_gaps(times: Iterable[tuple[str, str, float]]) -> list[Gap]:
    """Return the kernels that both timers timed, the shortest first, from label, timer and µs."""
    times_us = {(label, timer): time_us for label, timer, time_us in times}
    gaps = [
        Gap(label, times_us[label, Timer.EVENTS], execution_us)
        for (label, timer), execution_us in times_us.items()
        if timer == Timer.CUPTI and (label, Timer.EVENTS) in times_us
    ]
    return sorted(gaps, key=lambda gap: gap.cupti_us)


def deviating(gaps: Sequence[Gap]) -> list[Gap]:
    """Return the gaps that differ from the median by more than both limits."""
    median = statistics.median(gap.gap_us for gap in gaps) if gaps else 0.0
    return [
        gap
        for gap in gaps
        if abs(gap.gap_us - median) > max(MAX_DEVIATION_US, MAX_DEVIATION_OF_TIME * gap.cupti_us)
    ]


def judge_gaps(gaps: Sequence[Gap]) -> Verdict:
    """Return a verdict: times are trusted if the launch gap is short and equal for all kernels."""
    if not gaps:
        return Verdict(False, "No kernel was measured by both timers.")
    median = statistics.median(gap.gap_us for gap in gaps)
    distrust = f"Do not trust times here: the launch gap is {median:.2f} µs, "
    if not 0 <= median <= MAX_GAP_US:
        usual = f"where 0 to {MAX_GAP_US:g} µs are usual; the stream runs dry between launches."
        return Verdict(False, distrust + usual)
    if unequal := deviating(gaps):
        listed = ", ".join(f"{gap.gap_us:.2f} µs for {gap.label}" for gap in unequal)
        return Verdict(False, f"{distrust}but {listed}; is another program using the GPU?")
    return Verdict(
        True,
        f"This machine's times can be trusted: both timers agree but for a launch gap of "
        f"{median:.2f} µs, the same for every kernel.",
    )


def gap_table(gaps: Sequence[Gap]) -> Table:
    """Return a table of the kernels with both times and the launch gap, the shortest first."""
    marked = deviating(gaps)
    grid = table("kernel", "events, µs", "CUPTI, µs", "launch gap, µs", left={"kernel"})
    for gap in gaps:
        grid.add_row(
            gap.label,
            number(gap.events_us, 2),
            number(gap.cupti_us, 2),
            Text(f"{gap.gap_us:.2f}{' !' if gap in marked else '  '}", "red" * (gap in marked)),
        )
    return grid
