"""`gpubench reproduce`: runs the experiments and shows published beside measured."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from gpubench.commands.reproduce.experiment_file import find
from gpubench.commands.reproduce.experiments import Experiment
from gpubench.commands.reproduce.grids import RATIO, as_markdown, as_renderable, failures, grids
from gpubench.commands.reproduce.measure import Pace, Reproduction, reproduce
from gpubench.commands.reproduce.side_by_side import Compared, Line, side_by_side
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
"""Stem of the files that hold what was compared, of all experiments."""

CSV_COLUMNS = (
    *("experiment", "series", "label", "column", "figure", "published", "published_device"),
    *("measured", "ratio", "published_percent_of_peak", "percent_of_peak"),
    *("op", "variant", "tile", "dtype", "size", "scope", "status", "device", "shape"),
)


@dataclass(frozen=True, kw_only=True)
class Done:
    """An experiment that ran, and its series."""

    ran: Reproduction
    compared: list[Compared]
    left_out: str
    """What a GPU would have added, and why there is none."""


def list_experiments(names: Sequence[str]) -> None:
    """`gpubench reproduce --list`."""
    listing = table("experiment", "title", "published for", "figures", left=None)
    for one in find(names):
        devices = ", ".join(device.name for device in one.devices)
        figures = sum(len(series.published) for series in one.series)
        listing.add_row(one.name, one.title, devices, str(figures or ""))
    console().print(listing)


def run_reproduce(names: Sequence[str], options: Mapping[str, str | None], *, force: bool) -> int:
    """`gpubench reproduce`: the exit code."""
    asked = read_sweep(options)
    pace = Pace(
        rounds=asked.timing.rounds if options.get("rounds") else None,
        budget_s=asked.timing.budget_s,
    )
    experiments = find(names)
    with ExitStack() as workers:
        executors, missing = _executors(asked.device, workers)
        first = next(iter(executors.values())).device
        folder = asked.output or default_place(first.name, SUMMARY)
        _require_free(folder, experiments, force=force)

        err, out = console(stderr=True), console()
        done: list[Done] = []
        for experiment in experiments:
            with progress() as watcher:
                ran = reproduce(
                    experiment,
                    executors,
                    watcher,
                    folder,
                    pace,
                    lambda line: err.print(line, markup=False, soft_wrap=True),
                )
            one = Done(
                ran=ran,
                compared=side_by_side(experiment, ran.rows),
                left_out=_left_out(experiment, missing),
            )
            done.append(one)
            _show(one)
            _write(done, folder)
            if ran.interrupted:
                break

    out.print(_summary(done))
    if done[-1].ran.interrupted:
        err.print("interrupted: what was measured is kept")
    out.print(Text(f"\n{folder / SUMMARY}.md"), soft_wrap=True)
    if done[-1].ran.interrupted:
        return INTERRUPTED
    return 1 if any(one.ran.failed for one in done) else 0


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


def _require_free(folder: Path, experiments: Sequence[Experiment], *, force: bool) -> None:
    """Make the folder. Raises UsageError if it cannot be, or holds what would be overwritten."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output: cannot make the folder {folder}: {error.strerror}") from error
    names = [f"{SUMMARY}.md", f"{SUMMARY}.csv", *(f"{one.name}.csv" for one in experiments)]
    for name in names:
        require_free(folder / name, overwrite=force)


def _left_out(experiment: Experiment, missing: str) -> str:
    """The line that says what needs a GPU, or nothing."""
    kernels = dict.fromkeys(
        name
        for one in experiment.sweeps
        if one.sweep.device == "cuda"
        for name in one.sweep.variants or ("every variant",)
    )
    if not missing or not kernels:
        return ""
    return f"left out, as it needs an NVIDIA GPU: {', '.join(kernels)} ({missing})"


def _show(one: Done) -> None:
    experiment, out = one.ran.experiment, console()
    out.print(Text(f"\n{experiment.name}: {experiment.title}", style="bold underline"))
    for line in _opening(one):
        out.print(Text(line))
    for grid in grids(one.ran, one.compared, whole=False):
        out.print(as_renderable(grid, out.width))
    for line in (*failures(one.ran.rows, one.compared), *experiment.notes):
        out.print(Text(f"\n{line}"))


def _opening(one: Done) -> list[str]:
    """Where it was published, what ran it now, what it is."""
    experiment = one.ran.experiment
    now = ", ".join(dict.fromkeys(device.name for device in one.ran.devices)) or "nothing ran"
    lines = [f"published: {experiment.source}", f"measured: {now}; {RATIO}"]
    lines += [one.left_out] if one.left_out else []
    return lines + ([" ".join(experiment.about.split())] if experiment.about else [])


def _summary(done: Sequence[Done]) -> Text:
    """A line for each experiment: how many rules of its shape hold."""
    lines = []
    for one in done:
        verdicts = [judgement.holds for each in one.compared for judgement in each.judgements]
        parts = [
            f"{count} {word}"
            for count, word in (
                (verdicts.count(True), "hold"),
                (verdicts.count(False), "differ"),
                (verdicts.count(None), "not judged"),
            )
            if count
        ]
        failed = ", some points failed" if one.ran.failed else ""
        shapes = f"rules of the shape: {', '.join(parts)}" if parts else "no shape was published"
        lines.append(f"{one.ran.experiment.name}: {shapes}{failed}")
    return Text("\n" + "\n".join(lines))


def _write(done: Sequence[Done], folder: Path) -> None:
    """The comparison so far, as markdown and as CSV. Raises UsageError if it cannot be written."""
    try:
        (folder / f"{SUMMARY}.md").write_text(markdown(done), encoding="utf-8")
        with (folder / f"{SUMMARY}.csv").open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(CSV_COLUMNS)
            lines.writerows(_csv_lines(done))
    except OSError as error:
        raise UsageError(f"--output: cannot write into {folder}: {error.strerror}") from error


def markdown(done: Sequence[Done]) -> str:
    """Every experiment: what it is, its tables, whether its shape holds."""
    parts = ["# Published experiments, run again"]
    for one in done:
        experiment = one.ran.experiment
        parts += [f"## {experiment.name}: {experiment.title}", *_opening(one)]
        parts += [as_markdown(grid) for grid in grids(one.ran, one.compared, whole=True)]
        parts += [*failures(one.ran.rows, one.compared), *experiment.notes]
    return "\n\n".join(parts) + "\n"


def _csv_lines(done: Sequence[Done]) -> list[list[object]]:
    """One line for each measured column of each label of each series."""
    return [
        [
            *(one.ran.experiment.name, compared.series.name, line.cell.label),
            *_csv_figures(line, place, column.name),
            "; ".join(judgement.sentence for judgement in compared.judgements) if not place else "",
        ]
        for one in done
        for compared in one.compared
        for line in compared.lines
        for place, column in enumerate(compared.series.columns)
    ]


def _csv_figures(line: Line, place: int, name: str) -> list[object]:
    first, measured = place == 0, line.figures[place]
    row = measured.row
    facts = ("op", "variant", "tile", "dtype", "size", "scope", "status", "device")
    values = [
        *(name, measured.figure, line.cell.published if first else None),
        *(line.cell.device if first else None, measured.value, line.ratio if first else None),
        *(line.published_percent_of_peak if first else None, row.percent_of_peak if row else None),
        *(getattr(row, fact) if row else None for fact in facts),
    ]
    return ["" if value is None else value for value in values]
