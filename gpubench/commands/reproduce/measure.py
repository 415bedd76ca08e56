"""Runs an experiment's sweeps, one after the other, and keeps their rows together.

Slow loops on the CPU are measured once on a machine: their rows are kept in the user's cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import platformdirs

from gpubench.commands.reproduce.compare import Reproduction
from gpubench.commands.reproduce.experiment import Experiment
from gpubench.errors import UsageError
from gpubench.measure.executor import Executor
from gpubench.measure.result_file import ResultFile, partial_of
from gpubench.measure.rows import row as row_of
from gpubench.measure.session import Watcher, run, source_hash
from gpubench.model import Device, Measurement, Point, Status
from gpubench.plan.sweep import Sweep, plan
from gpubench.row import Row, read, write


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How thoroughly to measure; None: as each experiment says."""

    rounds: int | None = None
    budget_s: float | None = None
    """Wall time for all points of an experiment together."""


def reproduce(
    experiment: Experiment,
    executors: Mapping[str, Executor],
    watcher: Watcher,
    folder: Path,
    pace: Pace,
    tell: Callable[[str], None],
    cache: LoopCache,
    no_gpu: str = "",
) -> Reproduction:
    """Run the sweeps that these can, `cuda` and `cpu` or `cpu` alone.

    Rows go to `folder/NAME.csv`; while it runs, each sweep's to a file of its own. Ctrl-C ends it
    early and keeps what was measured. `tell` is given a line before each sweep.
    """
    todo = experiment.sweeps_for(gpu="cuda" in executors)
    paced = with_pace([wanted.sweep for wanted in todo], pace)
    rows: list[Row] = []
    interrupted = False
    files = [folder / f"{experiment.name}.sweep-{number + 1}.csv" for number in range(len(todo))]
    for number, (wanted, sweep) in enumerate(zip(todo, paced, strict=True)):
        executor, file = executors[sweep.device], ResultFile(files[number], overwrite=True)
        names = ", ".join(sweep.variants) or "all variants"
        tell(
            f"{experiment.name}, sweep {number + 1} of {len(todo)}: "
            f"{names} ({sweep.op}, {', '.join(sweep.dtypes)})"
        )
        if wanted.remember:
            measured, interrupted = _run_once(wanted.sweep, executor, watcher, file, tell, cache)
        else:
            outcome = run(sweep, executor, watcher, file)
            measured, interrupted = outcome.rows, outcome.interrupted
        rows += measured
        if interrupted:
            break
    write(rows, folder / f"{experiment.name}.csv")
    for path in files:
        path.unlink(missing_ok=True)
        partial_of(path).unlink(missing_ok=True)
    return Reproduction(
        experiment=experiment,
        rows=rows,
        devices=tuple(executors[name].device for name in dict.fromkeys(s.device for s in paced)),
        interrupted=interrupted,
        no_gpu=no_gpu,
    )


def with_pace(sweeps: list[Sweep], pace: Pace) -> list[Sweep]:
    """The sweeps with the rounds asked for, and each with its points' part of the budget."""
    counts = [len(plan(sweep, sweep.device)) for sweep in sweeps]
    paced = []
    for sweep, count in zip(sweeps, counts, strict=True):
        timing = sweep.timing
        if pace.rounds is not None:
            timing = replace(timing, rounds=pace.rounds)
        if pace.budget_s is not None:
            timing = replace(timing, budget_s=pace.budget_s * count / sum(counts))
        paced.append(replace(sweep, timing=timing))
    return paced


def _run_once(
    sweep: Sweep,
    executor: Executor,
    watcher: Watcher,
    file: ResultFile,
    tell: Callable[[str], None],
    cache: LoopCache,
) -> tuple[list[Row], bool]:
    """The rows of a sweep that is measured once on a machine, and whether it was interrupted.

    A launch may take half a minute, so it is timed once, by the launch that is verified.
    """
    points = [point for point, reason in plan(sweep, sweep.device).items() if not reason]
    known = {point: row for point in points if (row := cache.recall(point, executor.device))}
    if len(known) == len(points):
        tell(f"measured on this machine before; kept in {cache.folder}")
        return list(known.values()), False
    tell(f"slow loops, half a minute each at worst; measured once, then kept in {cache.folder}")
    once = replace(sweep, timing=replace(sweep.timing, rounds=1, few_samples=1))
    outcome = run(once, executor, watcher, file, wanted=lambda point: point not in known)
    for row in outcome.rows:
        cache.remember(row, executor.device)
    return [*known.values(), *outcome.rows], outcome.interrupted


@dataclass(frozen=True, kw_only=True)
class LoopCache:
    """Rows of slow loops, a file a row.

    A row is found again by the CPU's name and number of cores, everything that identifies the
    point, the hash of the variant's source, and the version of Numba, which compiled it.
    """

    folder: Path
    numba: str

    @classmethod
    def of_user(cls) -> LoopCache:
        """The one in the user's cache."""
        return cls(
            folder=Path(platformdirs.user_cache_dir("gpubench")) / "loops", numba=version("numba")
        )

    def recall(self, point: Point, device: Device) -> Row | None:
        """The row that an earlier run measured for this point, or None."""
        skipped = Measurement(point=point, status=Status.SKIPPED)
        blank = row_of(skipped, device, source_hash(point.variant))
        try:
            (kept,) = read(self._file(blank, device))
        except (UsageError, ValueError):  # not there, of an older schema, or damaged
            return None
        return kept if kept.key == blank.key else None

    def remember(self, row: Row, device: Device) -> None:
        """Keep a row that is right. A cache that cannot be written costs time, nothing else."""
        if row.status != Status.OK:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write([row], self._file(row, device))
        except (OSError, UsageError):
            return

    def _file(self, row: Row, device: Device) -> Path:
        key = (device.name, device.multiprocessors, *row.key, row.source_hash, self.numba)
        return self.folder / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.csv"
