"""`gpubench reproduce`: runs the experiments and shows published beside measured."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.text import Text

from gpubench.commands.reproduce.compare import Reproduction
from gpubench.commands.reproduce.experiment import Experiment
from gpubench.commands.reproduce.experiment_file import find
from gpubench.commands.reproduce.measure import LoopCache, Pace, reproduce
from gpubench.commands.reproduce.view import (
    CSV_COLUMNS,
    closing,
    csv_lines,
    grids,
    markdown,
    opening,
    summary,
)
from gpubench.errors import INTERRUPTED, DeviceUnavailableError, UsageError
from gpubench.measure.executor import Executor
from gpubench.measure.session import default_place
from gpubench.measure.worker import Worker
from gpubench.model import Timer
from gpubench.options import read_sweep
from gpubench.output import require_free
from gpubench.view.progress import progress
from gpubench.view.tables import console, table

SUMMARY = "reproduce"
"""Stem of the files with the comparison of all experiments."""


def list_experiments(names: Sequence[str]) -> None:
    """`gpubench reproduce --list`."""
    listing = table("experiment", "title", "published for", "figures", left=None)
    for experiment in find(names):
        figures = sum(len(series.published) for series in experiment.series)
        devices = ", ".join(experiment.devices)
        listing.add_row(experiment.name, experiment.file.title, devices, str(figures or ""))
    console().print(listing)


def run_reproduce(names: Sequence[str], options: Mapping[str, str | None], *, force: bool) -> int:
    """`gpubench reproduce`: the exit code."""
    asked = read_sweep(options)
    pace = Pace(
        rounds=asked.timing.rounds if options.get("rounds") else None,
        budget_s=asked.timing.budget_s,
    )
    experiments = find(names)
    err, out, cache = console(stderr=True), console(), LoopCache.of_user()
    done: list[Reproduction] = []
    with ExitStack() as workers:
        executors, no_gpu = _executors(asked.device, workers)
        first = next(iter(executors.values())).device
        folder = asked.output or default_place(first.name, SUMMARY)
        require_free_folder(folder, experiments, force=force)
        for experiment in experiments:
            with progress() as watcher:
                ran = reproduce(
                    experiment,
                    executors,
                    watcher,
                    folder,
                    pace,
                    lambda line: err.print(line, markup=False, soft_wrap=True),
                    cache,
                    no_gpu,
                )
            done.append(ran)
            _show(ran)
            write_comparison(done, folder)
            if ran.interrupted:
                break

    out.print(Text("\n" + "\n".join(map(summary, done))))
    interrupted = done[-1].interrupted
    if interrupted:
        err.print("interrupted: what was measured is kept")
    out.print(Text(f"\n{folder / SUMMARY}.md"), soft_wrap=True)
    return INTERRUPTED if interrupted else int(any(ran.failed for ran in done))


def _executors(device: str, workers: ExitStack) -> tuple[dict[str, Executor], str]:
    """The GPU, unless the CPU alone is asked for or there is none, and the CPU; why no GPU."""
    cpu: Executor = workers.enter_context(Worker("cpu", Timer.EVENTS))
    if device == "cpu":
        return {"cpu": cpu}, "--device cpu was asked for"
    try:
        gpu = Worker("cuda" if device == "auto" else device, Timer.EVENTS)
    except DeviceUnavailableError as error:
        if device != "auto":
            raise
        return {"cpu": cpu}, str(error)
    return {"cuda": workers.enter_context(gpu), "cpu": cpu}, ""


def require_free_folder(folder: Path, experiments: Sequence[Experiment], *, force: bool) -> None:
    """Make the folder. Raises UsageError if it cannot be, or holds what would be overwritten."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output: cannot make the folder {folder}: {error.strerror}") from error
    for name in (f"{SUMMARY}.md", f"{SUMMARY}.csv", *(f"{e.name}.csv" for e in experiments)):
        require_free(folder / name, overwrite=force)


def _show(ran: Reproduction) -> None:
    experiment, out = ran.experiment, console()
    out.print(Text(f"\n{experiment.name}: {experiment.file.title}", style="bold underline"))
    for line in opening(ran):
        out.print(Text(line))
    for grid in grids(ran, whole=False):
        out.print(grid.renderable(out.width))
    for line in closing(ran):
        out.print(Text(f"\n{line}"))


def write_comparison(done: Sequence[Reproduction], folder: Path) -> None:
    """The comparison so far, as markdown and as CSV. Raises UsageError if it cannot be written."""
    try:
        (folder / f"{SUMMARY}.md").write_text(markdown(done), encoding="utf-8")
        with (folder / f"{SUMMARY}.csv").open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(CSV_COLUMNS)
            lines.writerows(csv_lines(done))
    except OSError as error:
        raise UsageError(f"--output: cannot write into {folder}: {error.strerror}") from error
