"""Computes how many repeats are needed to find a slow-down, from the scatter of earlier results."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model import CPU_TIMERS, Device, PointKey, Status
from gpubench.plan.ranges import parse_fraction
from gpubench.plan.registry import baselines
from gpubench.results import store
from gpubench.results.row import read
from gpubench.stats.detectable import Needed, rounds_to_find, sweeps_to_find
from gpubench.text import counted

THRESHOLD = 0.02  # the default of `diff`
Q = 0.01  # the false discovery rate of `diff`

COLUMNS = ("status", "median_us", "min_us", "round_medians_us", "device")

MIN_ROUNDS = 3  # minimum number of recorded rounds on a GPU
MIN_SWEEPS = 7  # minimum number of recorded sweeps on a CPU

RESULTS = Path("results")  # the folder into which sweeps and `ab` write by default


class RoundsNeeded(NamedTuple):
    """Numbers of repeats that are needed to find a slow-down."""

    needed: Needed
    percent: str
    threshold: float
    unit: str  # `round`, or `sweep` on a CPU
    source: str  # the results that show the scatter

    @property
    def sentence(self) -> str:
        """Sentence that states how often to measure each side."""
        of_kernel, of_point = (
            f"{counted(number, self.unit)} per side"
            if number
            else f"over 200 {self.unit}s per side"
            for number in (self.needed.kernel, self.needed.point)
        )
        return (
            f"diff --threshold {100 * self.threshold:g}% finds a slow-down of {self.percent} in 9 "
            f"of 10 cases, if times scatter as in {self.source}: at all points of a kernel with "
            f"{of_kernel}, at a single point with {of_point}"
        )


def rounds_needed(percent: str, device: Device, threshold: float | None = None) -> RoundsNeeded:
    """Return how many rounds, or sweeps on a CPU, are needed to find a slow-down.

    The default threshold is 2 %, or half of the slow-down if the slow-down is at most 2 %.

    Raises UsageError if the slow-down is not above the threshold, or if no results of the device
    have enough repeats.
    """
    size = parse_fraction(percent, "--to-find", low=1e-4)
    if threshold is None:
        threshold = THRESHOLD if size > THRESHOLD else size / 2
    if size <= threshold:
        raise UsageError(f"--to-find: {percent} does not exceed --threshold {100 * threshold:g}%")
    for files in _newest_first(device.name):
        on_cpu, times_us = _times(files, device.name)
        if not times_us:
            continue
        kernels = [None if key.variant in baselines() else key.variant for key in times_us]
        find = sweeps_to_find if on_cpu else rounds_to_find
        needed = find(size, kernels, np.log([*times_us.values()]), threshold, Q)
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        unit = "sweep" if on_cpu else "round"
        return RoundsNeeded(needed, percent, threshold, unit, f"{files[0]}{more}")
    raise UsageError(
        f"--to-find: no result of {device.name} in {RESULTS}/ or under a saved name has "
        f"{MIN_ROUNDS} rounds (on a CPU: {MIN_SWEEPS} sweeps); 'gpubench sweep' or 'ab' "
        "makes such a result"
    )


def _newest_first(device: str) -> Iterator[Sequence[Path]]:
    """Yield groups of result files, with the newest group first.

    All files of a group come from the same build.

    A group has the files that were saved under one name, the file of a single sweep, or the base
    files of a run of `ab`.
    """
    groups = [[path] for path in RESULTS.glob("*.csv")]
    groups += [sorted(folder.glob("base-*.csv")) for folder in RESULTS.glob("*-ab")]
    groups += [store.saved(name, device) for name in store.names(device)]
    for group in sorted(filter(None, groups), key=lambda each: -each[-1].stat().st_mtime):
        try:
            yield store.newest_build(group, partial(read, columns=COLUMNS))[0]
        except UsageError:
            continue  # not a result file, or a damaged file


def _times(files: Sequence[Path], device: str) -> tuple[bool, dict[PointKey, list[float]]]:
    """Return whether a CPU was measured, and the times of each point's repeats.

    On a GPU, the times are the medians of rounds. On a CPU, they are the shortest times of sweeps.
    Only the points with the most repeats are kept. The dictionary is empty if there are too few
    repeats.
    """
    rows = [row for path in files for row in read(path, COLUMNS) if row.status == Status.OK]
    rows = [row for row in rows if row.device == device]
    on_cpu = any(row.timer in CPU_TIMERS for row in rows)
    times_us = {
        key: [
            time_us
            for row in of_point
            for time_us in ((row.min_us,) if on_cpu else row.round_medians_us)
            if time_us
        ]
        for key, of_point in grouped(rows, lambda row: row.key).items()
    }
    max_repeats = max(map(len, times_us.values()), default=0)
    if max_repeats < (MIN_SWEEPS if on_cpu else MIN_ROUNDS):
        return on_cpu, {}
    return on_cpu, {key: times for key, times in times_us.items() if len(times) == max_repeats}
