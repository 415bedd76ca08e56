"""Runs an experiment's sweeps, one after the other, and keeps their rows together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpubench.commands.reproduce.experiments import Experiment, ExperimentSweep
from gpubench.commands.reproduce.remembered import folder as remembered_in
from gpubench.commands.reproduce.remembered import recall, remember
from gpubench.measure.executor import Executor
from gpubench.measure.result_file import ResultFile, partial_of
from gpubench.measure.session import Watcher, run
from gpubench.model import Device, Status
from gpubench.plan.sweep import Sweep, plan
from gpubench.row import Row, write


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How thoroughly to measure; None: as each experiment says."""

    rounds: int | None = None
    budget_s: float | None = None
    """Wall time for all points of an experiment together."""


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What came of an experiment."""

    experiment: Experiment
    rows: list[Row]
    devices: tuple[Device, ...]
    """That its sweeps ran on."""

    interrupted: bool

    @property
    def failed(self) -> bool:
        """Whether a point was wrong or ended in an error."""
        return any(one.status in {Status.WRONG, Status.ERROR} for one in self.rows)


def reproduce(
    experiment: Experiment,
    executors: Mapping[str, Executor],
    watcher: Watcher,
    folder: Path,
    pace: Pace,
    tell: Callable[[str], None],
) -> Reproduction:
    """Run the sweeps that these can, `cuda` and `cpu` or `cpu` alone.

    Rows go to `folder/NAME.csv`; while it runs, each sweep's to a file of its own. Ctrl-C ends it
    early and keeps what was measured. `tell` is given a line before each sweep.
    """
    todo = experiment.sweeps_for(gpu="cuda" in executors)
    paced = _paced([one.sweep for one in todo], pace)
    rows: list[Row] = []
    parts: list[Path] = []
    interrupted = False
    for number, (one, sweep) in enumerate(zip(todo, paced, strict=True), 1):
        executor = executors[sweep.device]
        tell(f"{experiment.name}, sweep {number} of {len(todo)}: {_title(sweep)}")
        parts.append(folder / f"{experiment.name}.sweep-{number}.csv")
        file = ResultFile(parts[-1], overwrite=True)
        if one.remember:
            interrupted = _run_once(one, executor, watcher, file, rows, tell)
        else:
            outcome = run(sweep, executor, watcher, file)
            rows += outcome.rows
            interrupted = outcome.interrupted
        if interrupted:
            break
    write(rows, folder / f"{experiment.name}.csv")
    for part in parts:
        part.unlink(missing_ok=True)
        partial_of(part).unlink(missing_ok=True)
    names = dict.fromkeys(one.sweep.device for one in todo)
    return Reproduction(
        experiment=experiment,
        rows=rows,
        devices=tuple(executors[name].device for name in names),
        interrupted=interrupted,
    )


def _paced(sweeps: list[Sweep], pace: Pace) -> list[Sweep]:
    """The sweeps with the rounds asked for, and each with its points' share of the budget."""
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
    one: ExperimentSweep,
    executor: Executor,
    watcher: Watcher,
    file: ResultFile,
    rows: list[Row],
    tell: Callable[[str], None],
) -> bool:
    """Add the rows of a sweep that is measured once on a machine; whether it was interrupted.

    A launch may take half a minute, so it is timed once, by the launch that is verified.
    """
    points = [point for point, reason in plan(one.sweep, one.sweep.device).items() if not reason]
    known = {point: kept for point in points if (kept := recall(point, executor.device))}
    rows += known.values()
    if len(known) == len(points):
        tell(f"measured on this machine before; kept in {remembered_in()}")
        return False
    tell(f"slow loops, half a minute each at worst; measured once, then kept in {remembered_in()}")
    sweep = replace(one.sweep, timing=replace(one.sweep.timing, rounds=1, few_samples=1))
    outcome = run(sweep, executor, watcher, file, wanted=lambda point: point not in known)
    for measured in outcome.rows:
        remember(measured, executor.device)
    rows += outcome.rows
    return outcome.interrupted


def _title(sweep: Sweep) -> str:
    """`register_tile (gemm, int32)`."""
    names = ", ".join(sweep.variants) or "all variants"
    return f"{names} ({sweep.op}, {', '.join(sweep.dtypes)})"
