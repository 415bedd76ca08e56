"""`gpubench reproduce`: runs the experiments and shows published beside measured.

An experiment's sweeps run one after the other, and their rows are kept together. Slow loops on the
CPU are measured once on a machine: their rows are kept in the user's cache.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from rich.text import Text

from gpubench.cache import keep, user_cache
from gpubench.commands.reproduce import view
from gpubench.commands.reproduce.compare import Reproduction
from gpubench.commands.reproduce.experiment import Experiment, find
from gpubench.engine.pool import Pool, Watcher, local_pool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import run
from gpubench.errors import INTERRUPTED, DeviceUnavailableError, UsageError
from gpubench.model import Device, Measurement, Point, Status, Timer
from gpubench.options import read_sweep
from gpubench.plan.sweep import Sweep, plan
from gpubench.results.output import Output, make_directory
from gpubench.results.provenance import source_hash
from gpubench.results.result_file import ResultFile, default_path, partial_of
from gpubench.results.row import Row, encode, encode_csv, read
from gpubench.results.rows import row as row_of
from gpubench.text import clean_lines
from gpubench.view.progress import progress
from gpubench.view.tables import console, table

LOOP_SAMPLES = 3
"""Launches of a slow loop, one a round."""

_SUMMARY = "reproduce"  # stem of the files with the comparison of all experiments


def list_experiments(names: Sequence[str]) -> None:
    """`gpubench reproduce --list`."""
    listing = table("experiment", "title", "published for", "figures", left=None)
    for experiment in find(names):
        figures = sum(len(series.published) for series in experiment.series)
        devices = ", ".join(experiment.devices)
        listing.add_row(experiment.name, experiment.file.title, devices, str(figures or ""))
    console().print(listing)


def run_reproduce(
    names: Sequence[str],
    options: Mapping[str, str | None],
    *,
    resume: Path | None = None,
    force: bool = False,
) -> int:
    """`gpubench reproduce`: the exit code."""
    asked = read_sweep(options)
    if resume and asked.output:
        raise UsageError("--resume names the folder to go on in: leave --output out")
    experiments = find(names)
    err, out = console(stderr=True), console()
    done: list[Reproduction] = []
    with ExitStack() as workers:
        executors, no_gpu = _executors(asked.device, workers)
        first = next(iter(executors.values())).device
        folder = resume or asked.output or default_path(first.name, _SUMMARY)
        outputs = claim(folder, experiments, resume=resume is not None, force=force)
        for experiment in experiments:
            with progress() as watcher:
                ran = reproduce(
                    experiment,
                    executors,
                    watcher,
                    outputs[experiment.name],
                    lambda line: err.print(line, soft_wrap=True),
                    resume=resume is not None,
                    force=force,
                    rounds=asked.timing.rounds if options.get("rounds") else None,
                    budget_s=asked.timing.budget_s,
                    no_gpu=no_gpu,
                )
            done.append(ran)
            out.print(Text(f"\n{experiment.name}: {experiment.file.title}", "bold underline"))
            for line in view.opening(ran):
                out.print(Text(line))
            for grid in view.grids(ran, whole=False):
                out.print(grid.renderable(out.width))
            for line in view.closing(ran):
                out.print(Text(f"\n{line}"))
            write_comparison(done, outputs)
            if ran.interrupted:
                break
        else:
            for path in _partials(folder, experiments):
                path.unlink()

    out.print(Text("\n" + "\n".join(map(view.summary, done))))
    if ran.interrupted:
        err.print(
            f"interrupted: what was measured is kept; --resume {folder} continues", soft_wrap=True
        )
    out.print(Text(f"\n{folder / _SUMMARY}.md"), soft_wrap=True)
    return INTERRUPTED if ran.interrupted else int(any(ran.failed for ran in done))


def _executors(device: str, workers: ExitStack) -> tuple[dict[str, Pool], str]:
    """The GPU, unless the CPU alone is asked for or there is none, and the CPU; why no GPU."""
    cpu: Pool = workers.enter_context(local_pool("cpu", Timer.EVENTS))
    if device == "cpu":
        return {"cpu": cpu}, "--device cpu was asked for"
    try:
        gpu = workers.enter_context(
            local_pool("cuda" if device == "auto" else device, Timer.EVENTS)
        )
    except DeviceUnavailableError as error:
        if device != "auto":
            raise
        return {"cpu": cpu}, str(error)
    return {"cuda": gpu, "cpu": cpu}, ""


def claim(
    folder: Path, experiments: Sequence[Experiment], *, resume: bool = False, force: bool = False
) -> dict[str, Output]:
    """Make the folder: the files of the comparison, `.md` and `.csv`, and of each experiment.

    Raises UsageError if it cannot be made, or holds what would be overwritten, or nothing to
    continue.
    """
    partials = _partials(folder, experiments)
    if resume and not partials:
        raise UsageError(f"--resume: nothing to continue: {folder} holds no sweep of these")
    make_directory(folder)
    for path in () if resume else partials:
        hint = f"--resume {folder} continues it, --force starts anew"
        Output(path, overwrite=force, hint=hint)
    names = {suffix: f"{_SUMMARY}{suffix}" for suffix in (".md", ".csv")}
    names |= {experiment.name: f"{experiment.name}.csv" for experiment in experiments}
    return {key: Output(folder / name, overwrite=resume or force) for key, name in names.items()}


def _partials(folder: Path, experiments: Sequence[Experiment]) -> list[Path]:
    """What the sweeps have measured; it stays until all experiments are done."""
    names = [glob.escape(experiment.name) for experiment in experiments]
    return sorted(
        path for name in names for path in folder.glob(partial_of(Path(f"{name}.sweep-*.csv")).name)
    )


def write_comparison(done: Sequence[Reproduction], outputs: Mapping[str, Output]) -> None:
    """The comparison so far, as markdown and as CSV. Raises UsageError if it cannot be written."""
    outputs[".md"].write(clean_lines(view.markdown(done)).encode())
    lines = ([line.get(name) for name in view.CSV_COLUMNS] for line in view.csv_lines(done))
    outputs[".csv"].write(encode_csv(view.CSV_COLUMNS, lines))


class _SweepFile(ResultFile):
    """The measurements of one of an experiment's sweeps, whose rows go into its file."""

    def finish(self, _rows: Iterable[Row], *, complete: bool) -> None:  # noqa: ARG002 # as overridden
        """Keep them until all experiments are done."""
        self.close()


def reproduce(
    experiment: Experiment,
    executors: Mapping[str, Pool],
    watcher: Watcher,
    output: Output,
    tell: Callable[[str], None],
    cache: LoopCache | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    rounds: int | None = None,
    budget_s: float | None = None,
    no_gpu: str = "",
) -> Reproduction:
    """Run the sweeps that these can, `cuda` and `cpu` or `cpu` alone.

    Rows go to the output; measurements of each sweep to a file of its own beside it, which
    `resume` continues and `force` overwrites. Ctrl-C ends it early and keeps what was measured.
    `tell` is given a line before each sweep. The budget is wall time for all points together;
    without it and without rounds, it is as the experiment says.
    """
    todo = experiment.sweeps_for(gpu="cuda" in executors)
    paced = with_pace([sweep for sweep, _ in todo], rounds, budget_s)
    rows: list[Row] = []
    interrupted = False
    for number, ((wanted, conditions), sweep) in enumerate(zip(todo, paced, strict=True), 1):
        path = output.path.with_name(f"{experiment.name}.sweep-{number}.csv")
        started = resume and partial_of(path).exists()
        executor, file = executors[sweep.device], _SweepFile(path, overwrite=force, resume=started)
        file.continued_by = path.parent
        names = ", ".join(sweep.variants) or "all variants"
        tell(
            f"{experiment.name}, sweep {number} of {len(todo)}: "
            f"{names} ({sweep.op}, {', '.join(sweep.dtypes)})"
        )
        if conditions.remember:
            cache = cache or LoopCache()
            measured, interrupted = _run_once(wanted, executor, watcher, file, tell, cache)
        else:
            outcome = run(prepare(sweep, executor.device), executor, watcher, file)
            measured, interrupted = outcome.rows, outcome.interrupted
        rows += measured
        if interrupted:
            break
    output.write(encode(rows))
    return Reproduction(
        experiment=experiment,
        rows=rows,
        devices=tuple(executors[name].device for name in dict.fromkeys(s.device for s in paced)),
        interrupted=interrupted,
        no_gpu=no_gpu,
    )


def with_pace(sweeps: list[Sweep], rounds: int | None, budget_s: float | None) -> list[Sweep]:
    """The sweeps with the rounds asked for, and each with its points' part of the budget."""
    counts = [len(plan(sweep, sweep.device)) for sweep in sweeps]
    paced = []
    for sweep, count in zip(sweeps, counts, strict=True):
        part_s = budget_s * count / sum(counts) if budget_s else sweep.timing.budget_s
        timing = replace(sweep.timing, rounds=rounds or sweep.timing.rounds, budget_s=part_s)
        paced.append(replace(sweep, timing=timing))
    return paced


def _run_once(
    sweep: Sweep,
    executor: Pool,
    watcher: Watcher,
    file: ResultFile,
    tell: Callable[[str], None],
    cache: LoopCache,
) -> tuple[list[Row], bool]:
    """The rows of a sweep that is measured once on a machine, and whether it was interrupted.

    A launch may take half a minute, so each of the rounds is one launch, the first round's the one
    that is verified. Rows whose rounds disagree are shown and not kept.
    """
    points = [point for point, reason in plan(sweep, sweep.device).items() if not reason]
    known: dict[Point, Row] = {}
    if not file.resume:  # it may hold a point that another run has kept by now
        known = {point: row for point in points if (row := cache.recall(point, executor.device))}
    if len(known) == len(points):
        tell(f"measured on this machine before; kept in {cache.folder}")
        return list(known.values()), False
    tell(f"slow loops, half a minute a launch at worst; measured once, then kept in {cache.folder}")
    timing = replace(sweep.timing, rounds=LOOP_SAMPLES, few_samples=LOOP_SAMPLES)
    job = prepare(
        replace(sweep, timing=timing), executor.device, keep=lambda point: point not in known
    )
    outcome = run(job, executor, watcher, file)
    for row in outcome.rows:
        cache.remember(row, executor.device)
    return [*known.values(), *outcome.rows], outcome.interrupted


@dataclass(frozen=True, kw_only=True)
class LoopCache:
    """Rows of slow loops, a file a row, by default in the user's cache.

    A row is found again by the CPU's name and number of CPUs, everything that identifies the
    point, the hash of the variant's source, the version of Numba, which compiled it, and how often
    it was launched.
    """

    folder: Path = field(default_factory=lambda: user_cache("loops"))
    numba: str = field(default_factory=lambda: version("numba"))

    def recall(self, point: Point, device: Device) -> Row | None:
        """The row that an earlier run measured for this point, or None."""
        skipped = Measurement(point=point, status=Status.SKIPPED)
        blank = row_of(skipped, device, source_hash(point.variant))
        path = self._file(blank, device)
        if not path.is_file():
            return None
        try:
            (kept,) = read(path)
        except (UsageError, ValueError):  # of an older schema, or damaged
            return None
        return kept if kept.key == blank.key else None

    def remember(self, row: Row, device: Device) -> None:
        """Keep a row that is right and stable. A cache that cannot be written costs time only."""
        if row.status == Status.OK and not row.unstable:
            keep(self._file(row, device), encode([row]))

    def _file(self, row: Row, device: Device) -> Path:
        machine = (device.name, device.multiprocessors)
        key = (*machine, *row.key, row.source_hash, self.numba, LOOP_SAMPLES)
        return self.folder / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.csv"
