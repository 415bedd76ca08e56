"""`gpubench reproduce`: runs the sweeps of experiments, and shows published beside measured.

The sweeps of an experiment run one after the other, and their rows are written together. Slow loops
on the CPU are measured once on a machine; their rows are kept in the user's cache.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from gpubench.backends import find_devices
from gpubench.cache import cache_file, keep
from gpubench.commands.reproduce import view
from gpubench.commands.reproduce.compare import CSV_COLUMNS, Reproduction
from gpubench.commands.reproduce.experiment import Experiment, find
from gpubench.engine.pool import Pool, Watcher
from gpubench.engine.prepare import Job, prepare, prepare_dry
from gpubench.engine.run import open_pool, run
from gpubench.errors import INTERRUPTED, DeviceUnavailableError, UsageError
from gpubench.model import Status
from gpubench.options import OPTIONS, read_sweep
from gpubench.plan.schedule import minutes
from gpubench.plan.sweep import Sweep
from gpubench.results.columns import encode_csv
from gpubench.results.output import Output, make_directory
from gpubench.results.result_file import ResultFile, default_path, partial_of
from gpubench.results.row import Row, encode, read
from gpubench.text import clean_lines
from gpubench.view.progress import progress
from gpubench.view.tables import console, table

_SUMMARY = "reproduce"  # stem of the files with the comparison of all experiments


def list_experiments(names: Sequence[str], checkout: Path | None = None) -> None:
    """`gpubench reproduce --list`."""
    listing = table("experiment", "title", "published for", "figures", left=None)
    for experiment in find(names, checkout):
        figures = sum(len(series.published) for series in experiment.series)
        devices = ", ".join(experiment.devices)
        listing.add_row(experiment.name, experiment.file.title, devices, str(figures or ""))
    console().print(listing)


def foresee(names: Sequence[str], options: Mapping[str, Any], checkout: Path | None = None) -> None:
    """`gpubench reproduce --dry-run`: print each sweep with its points and its expected time."""
    asked = read_sweep(options)
    has_gpu = asked.device != "cpu"
    if has_gpu:
        try:
            find_devices(asked.device.replace("auto", "cuda"))
        except DeviceUnavailableError:
            if asked.device != "auto":
                raise
            has_gpu = False
    listing = table(
        *("experiment", "variants", "op", "dtypes", "points", "expected"),
        left={"experiment", "variants", "op", "dtypes"},
    )
    total_s = 0.0
    for experiment in find(names, checkout):
        name = experiment.name
        entries = experiment.sweeps_for(gpu=has_gpu)
        total = sum(each.points for each in entries)
        for sweep, conditions, count in entries:
            paced = sweep if conditions.remember else _paced(sweep, asked, count / total)
            job = prepare_dry(paced)
            expected_s = job.forecast().expected_s
            total_s += expected_s
            variants = ", ".join(sweep.variants) or "all"
            cells = sweep.op, ", ".join(sweep.dtypes), str(len(job.points)), minutes(expected_s)
            listing.add_row(name, variants, *cells)
            name = ""
    console().print(listing)
    console().print(Text(f"\nabout {minutes(total_s)} in all; nothing is run"))


def run_reproduce(
    names: Sequence[str],
    options: Mapping[str, Any],
    *,
    checkout: Path | None = None,
    folder: str | None = None,
    on: str | None = None,
    resume: Path | None = None,
    force: bool = False,
) -> int:
    """`gpubench reproduce`: return the exit code."""
    asked = read_sweep(options)
    if resume and folder is not None:
        raise UsageError("--resume names the directory to continue: leave --dir out")
    named = None
    if folder is not None:
        named = replace(OPTIONS["output"], name="dir", read=lambda _, path: path).convert(folder)
    experiments = find(names, checkout)
    out, done = console(), []
    with ExitStack() as stack:
        pools, no_gpu = _open_pools(asked, on, stack)
        target = resume or named or default_path(next(iter(pools.values())).name, _SUMMARY)
        if file := asked.samples:
            in_folder = Path(os.path.realpath(file)).parent == Path(os.path.realpath(target))
            if in_folder and any(map(file.match, _patterns(experiments))):
                raise UsageError(f"--samples: {file} is a file of the results; name another")
        claim(target, experiments, resume=bool(resume), force=force)
        samples = asked.samples and Output(asked.samples, overwrite=force, flag="--samples")
        for experiment in experiments:
            with progress() as watcher:
                result = reproduce(
                    experiment, pools, target, asked, watcher, resume=bool(resume), force=force
                )
            done.append(replace(result, no_gpu=no_gpu))
            own = target / f"{experiment.name}.csv"
            Output(own, overwrite=True).write(encode(result.rows))
            out.print(Group(*view.shown(done[-1])))
            write_comparison(done, target)
            if result.interrupted:
                break
        else:
            measurements = _partials(target, experiments)
            if samples:
                samples.write(b"".join(path.read_bytes() for path in measurements))
            for path in measurements:
                path.unlink()
    out.print(Text("\n" + "\n".join(map(view.summary, done))))
    if result.interrupted:
        message = f"interrupted: what was measured is kept; --resume {target} continues"
        console(stderr=True).print(message, soft_wrap=True)
    out.print(Text(f"\n{target / _SUMMARY}.md"), soft_wrap=True)
    return INTERRUPTED if result.interrupted else int(any(result.failed for result in done))


def _open_pools(asked: Sweep, on: str | None, stack: ExitStack) -> tuple[dict[str, Pool], str]:
    """Open the GPU, if any, and the CPU. The text is the reason why there is no GPU."""
    pools: dict[str, Pool] = {}
    no_gpu = "--device cpu was asked for" if asked.device == "cpu" else ""
    if not no_gpu:
        gpu = replace(asked, device=asked.device.replace("auto", "cuda"))
        try:
            pools["cuda"] = stack.enter_context(open_pool(gpu, on))
        except DeviceUnavailableError as error:
            if asked.device != "auto":
                raise
            no_gpu = str(error)
    pools["cpu"] = stack.enter_context(open_pool(replace(asked, device="cpu"), on))
    return pools, no_gpu


def claim(
    folder: Path, experiments: Sequence[Experiment], *, resume: bool = False, force: bool = False
) -> None:
    """Make the folder of the results.

    Raises UsageError if that fails, if the folder holds files of an earlier run that would be
    overwritten, or if there is nothing to continue.
    """
    partials = _partials(folder, experiments)
    if resume and not partials:
        raise UsageError(f"--resume: nothing to continue: {folder} holds no sweep of these")
    make_directory(folder, "--dir")
    continues = f"--resume {folder} continues it, --force starts anew"
    for pattern in _patterns(experiments):
        for path in sorted(folder.glob(pattern)):
            hint = continues if partials else "--force overwrites it"
            Output(path, overwrite=resume or force, flag="--dir", hint=hint)


def _patterns(experiments: Sequence[Experiment]) -> list[str]:
    """Return the patterns of the names of all files that are written to the folder."""
    names = [glob.escape(experiment.name) for experiment in experiments]
    endings = ("csv*", "sweep-*")
    return [f"{_SUMMARY}.[cm]*", *(f"{name}.{ending}" for name in names for ending in endings)]


def _partials(folder: Path, experiments: Sequence[Experiment]) -> list[Path]:
    """Return the files of the measurements. They stay until all experiments are done."""
    names = [glob.escape(experiment.name) for experiment in experiments]
    return sorted(
        path for name in names for path in folder.glob(partial_of(Path(f"{name}.sweep-*.csv")).name)
    )


def write_comparison(done: Sequence[Reproduction], folder: Path) -> None:
    """Write the comparison as Markdown and as CSV. Raises UsageError if that fails."""
    text = clean_lines(view.markdown(done)).encode()
    Output(folder / f"{_SUMMARY}.md", overwrite=True).write(text)
    lines = [line for result in done for line in result.csv()]
    Output(folder / f"{_SUMMARY}.csv", overwrite=True).write(encode_csv(CSV_COLUMNS, lines))


class _SweepFile(ResultFile):
    """The measurements of a sweep, whose rows go into the file of the experiment."""

    def finish(self, _rows: Iterable[Row], *, complete: bool) -> None:  # noqa: ARG002 # as overridden
        """Keep the measurements until all experiments are done."""
        self.close()


def reproduce(
    experiment: Experiment,
    pools: Mapping[str, Pool],
    folder: Path,
    asked: Sweep,
    watcher: Watcher,
    *,
    resume: bool = False,
    force: bool = False,
) -> Reproduction:
    """Run the sweeps that the pools `cuda` and `cpu`, or `cpu` alone, can run.

    The measurements of each sweep go into a file of the folder, which `resume` continues and
    `force` overwrites. Ctrl-C ends the experiment and keeps what was measured. `asked` may set the
    rounds, and a budget for all points of the experiment.
    """
    entries = experiment.sweeps_for(gpu="cuda" in pools)
    total = sum(each.points for each in entries)
    rows: list[Row] = []
    interrupted = False
    for number, (sweep, conditions, count) in enumerate(entries, 1):
        pool, once = pools[sweep.device], conditions.remember
        job = prepare(sweep if once else _paced(sweep, asked, count / total), pool.device)
        cached = _cached(job) if once else None
        variants = ", ".join(sweep.variants) or "all variants"
        note = f": measured before, kept in {cached.parent}" if cached and cached.exists() else ""
        console(stderr=True).print(
            f"{experiment.name}, sweep {number} of {len(entries)}: {variants} "
            f"({sweep.op}, {', '.join(sweep.dtypes)}){note}",
            soft_wrap=True,
        )
        measured: list[Row] = []
        if cached:
            with suppress(UsageError):  # missing, damaged, or with other columns
                measured = read(cached)
        if not measured:
            path = folder / f"{experiment.name}.sweep-{number}.csv"
            file = _SweepFile(path, overwrite=force, resume=resume and partial_of(path).exists())
            file.continued_by = folder
            outcome = run(job, pool, watcher, file)
            measured, interrupted = outcome.rows, outcome.interrupted
            stable = all(row.status == Status.OK and not row.unstable for row in measured)
            if cached and stable and not interrupted:
                keep(cached, encode(measured))
        rows += measured
        if interrupted:
            break
    devices = {sweep.device: pools[sweep.device].device for sweep, *_ in entries}
    return Reproduction(
        experiment=experiment,
        rows=rows,
        devices=tuple(devices.values()),
        interrupted=interrupted,
    )


def _paced(sweep: Sweep, asked: Sweep, share: float) -> Sweep:
    """Return a sweep with the rounds that the user asked for, and its share of the budget."""
    texts = {**sweep.options, "rounds": asked.options.get("rounds", sweep.timing.rounds)}
    if asked.timing.budget_s:
        texts["budget"] = f"{max(1.0, asked.timing.budget_s * share):g}"
    return read_sweep(texts)


def _cached(job: Job) -> Path:
    """Return the file in the user's cache for the rows of a job with these settings on this CPU."""
    file = cache_file("loops", job.context, job.device.multiprocessors)
    return file.with_suffix(".csv")
