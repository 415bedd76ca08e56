"""`gpubench reproduce`: runs experiments, and compares measured with published figures.

The sweeps of an experiment run one after the other, and their rows are written together. Slow loops
on the CPU are measured once on a machine, and their rows are kept in the user's cache.
"""

import os
from collections.abc import Collection, Mapping, Sequence
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
from gpubench.commands.reproduce.experiment import (
    Experiment,
    PlannedSweep,
    find,
    paths_of,
    read_file,
    shipped,
)
from gpubench.engine.pool import Pool, Watcher
from gpubench.engine.prepare import prepare, prepare_dry
from gpubench.engine.run import open_pool, run
from gpubench.errors import INTERRUPTED, DeviceUnavailableError, UsageError
from gpubench.files import Output
from gpubench.model import Status
from gpubench.options import OPTIONS, read_sweep
from gpubench.plan.schedule import InRounds, minutes
from gpubench.plan.sweep import Sweep
from gpubench.results.columns import encode_csv
from gpubench.results.result_file import ResultFile, default_path, has_results, partial_of
from gpubench.results.row import Row, encode, read
from gpubench.text import clean_lines
from gpubench.view.progress import SweepProgress
from gpubench.view.tables import console, say, table

_SUMMARY = "reproduce"  # stem of the files with the comparison of all experiments


def list_experiments(names: Sequence[str], *, hint: bool) -> None:
    """List experiments. If `hint` is true, also print how to run them."""
    headings = ("experiment", "title", "published for", "figures")
    listing = table(*headings, left={*headings} - {"figures"})
    for path in paths_of(names or [*shipped(), *shipped("claims")]).values():
        file = read_file(path)
        figures = sum(len(series.published) for series in file.series)
        title = file.title
        if file.checkout:
            title += f" (code of {file.checkout.repository.removeprefix('https://github.com/')})"
        listing.add_row(path.stem, title, ", ".join(file.devices), str(figures or ""))
    console().print(listing)
    if hint:
        say("\nname experiments to run, or use --all; --dry-run shows how long they take", err=True)


def foresee(
    names: Sequence[str],
    options: Mapping[str, Any],
    checkout: Path | None,
    folder: str | None,
    resume: Path | None,
    *,
    force: bool,
) -> None:
    """`gpubench reproduce --dry-run`: print each sweep with its points and its expected time."""
    asked, target = read_sweep(options), _target(folder, resume)
    gpu = any(device.backend == "cuda" for device in find_devices(asked.device)[0])
    listing = table("experiment", "sweep", "points", "expected", left={"experiment", "sweep"})
    total_s = 0.0
    codes = []
    experiments = find(names, checkout, runs=False)
    if target:
        claim(target, experiments, resume=bool(resume), force=force)
    for experiment in experiments:
        if (needed := experiment.file.checkout) and not checkout:
            codes.append(f"{experiment.name} needs --checkout DIR, a checkout of {needed.title}")
        left_out = [each for each in experiment.sweeps if each.sweep.device == "cuda" and not gpu]
        for each in (*_paced(experiment, asked, gpu=gpu), *left_out):
            expected = "no GPU"
            if each not in left_out:
                expected_s = prepare_dry(each.sweep).forecast().expected_s
                expected, total_s = minutes(expected_s), total_s + expected_s
            listing.add_row(experiment.name, each.words, str(each.points), expected)
    in_all = f"about {minutes(total_s)} in all" if total_s else "no sweep can run on this machine"
    console().print(listing, Text("\n".join(["", *codes, f"{in_all}; nothing is run"])))


def run_reproduce(
    names: Sequence[str],
    options: Mapping[str, Any],
    checkout: Path | None,
    folder: str | None,
    resume: Path | None,
    *,
    on: str | None,
    force: bool,
) -> int:
    """Run experiments, print and write the comparisons, and return the exit code."""
    asked, named = read_sweep(options), _target(folder, resume)
    experiments = find(names, checkout)
    out, done = console(), []
    with ExitStack() as stack:
        pools, no_gpu = _open_pools(asked, on, stack)
        target = named or default_path(next(iter(pools.values())).name, _SUMMARY)
        partials = claim(target, experiments, resume=bool(resume), force=force)
        for experiment in experiments:
            with SweepProgress() as watcher:
                ways = {"resume": bool(resume), "force": force}
                result = reproduce(experiment, pools, target, asked, watcher, **ways)
            done.append(replace(result, no_gpu=no_gpu))
            own = target / f"{experiment.name}.csv"
            out.print(Text(f"\n{view.title(result)}", "bold underline"))
            out.print(Group(*view.parts(done[-1], whole=False)))
            if has_results(result.rows) or not own.exists():
                Output(own, overwrite=True).write(encode(result.rows))
                write_comparison(done, target)
            if result.interrupted:
                break
        else:
            for path in partials:
                path.unlink(missing_ok=True)
    out.print(Text("\n" + "\n".join(map(view.summary, done))))
    if result.interrupted:
        say(
            f"interrupted: what was measured is kept; --resume {target} continues the run", err=True
        )
    say(f"\n{target / _SUMMARY}.md")
    return INTERRUPTED if result.interrupted else int(any(result.failed for result in done))


def _target(folder: str | None, resume: Path | None) -> Path | None:
    """Return the directory that `--dir` or `--resume` names, or None."""
    if folder is None:
        return resume
    if resume:
        raise UsageError("--resume names the directory to continue: leave --dir out")
    named: Path = replace(OPTIONS["output"], name="dir", read=lambda _, path: path).convert(folder)
    return named


def _open_pools(asked: Sweep, on: str | None, stack: ExitStack) -> tuple[dict[str, Pool], str]:
    """Return a pool for the CPU, a pool for the GPU if there is a GPU, and why there is no GPU."""
    pools: dict[str, Pool] = {}
    no_gpu = "because of --device cpu" if asked.device == "cpu" else ""
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
) -> list[Path]:
    """Return the files of the sweeps' measurements in the folder of the results. Make no file.

    These files are kept until all experiments are done. Raises UsageError if the folder cannot be
    written or holds files of an earlier run that would be overwritten, or if there is nothing to
    continue.
    """
    names = (f"{_SUMMARY}.md", f"{_SUMMARY}.csv", *(f"{each.name}.csv" for each in experiments))
    partials = [
        partial_of(_sweep_file(folder, each, number))
        for each in experiments
        for number in range(1, len(each.sweeps) + 1)
    ]
    started = any(map(os.path.lexists, partials))
    if resume and not started:
        raise UsageError(
            f"--resume: nothing to continue: {folder} holds no sweep of these experiments"
        )
    hint = "--force overwrites it"
    if started:
        hint = f"--resume {folder} continues the run, --force starts a new run"
    for path in (*(folder / name for name in names), *partials):
        Output(path, overwrite=resume or force, flag="--dir", hint=hint)
    return partials


def _sweep_file(folder: Path, experiment: Experiment, number: int) -> Path:
    return folder / f"{experiment.name}.sweep-{number}.csv"


def write_comparison(done: Sequence[Reproduction], folder: Path) -> None:
    """Write the comparison as Markdown and as CSV. Raises UsageError if writing fails."""
    text = clean_lines(view.markdown(done)).encode()
    Output(folder / f"{_SUMMARY}.md", overwrite=True).write(text)
    lines = [line for result in done for line in result.csv()]
    Output(folder / f"{_SUMMARY}.csv", overwrite=True).write(encode_csv(CSV_COLUMNS, lines))


class _SweepFile(ResultFile):
    """The file of a sweep's measurements. The rows are also written to the experiment's file."""

    def finish(self, _rows: Collection[Row], *, complete: bool) -> bool:  # noqa: ARG002 # as overridden
        """Keep the measurements until all experiments are done."""
        self.close()
        return True


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
    """Run the sweeps of an experiment on the pools `cuda` and `cpu`, or only on the pool `cpu`.

    The measurements of each sweep go into a file of the folder. `resume` continues this file, and
    `force` overwrites it. Ctrl-C ends the experiment and keeps what was measured. `asked` may set
    the rounds, and a budget for all points of the experiment.
    """
    planned = _paced(experiment, asked, gpu="cuda" in pools)
    rows: list[Row] = []
    interrupted = False
    for number, each in enumerate(planned, 1):
        pool = pools[each.sweep.device]
        job = prepare(each.sweep, pool.device, strategy=InRounds(whole_problems=True))
        loops = cache_file("loops", job.context, job.device.multiprocessors).with_suffix(".csv")
        measured, note = [], ""
        if each.conditions.remember:
            with suppress(UsageError):  # the file is missing or damaged, or has other columns
                measured, note = read(loops), f": measured earlier, read from {loops.parent}"
        say(f"{experiment.name}, sweep {number} of {len(planned)}: {each.words}{note}", err=True)
        if not measured:
            path = _sweep_file(folder, experiment, number)
            file = _SweepFile(path, overwrite=force, resume=resume and partial_of(path).exists())
            file.continued_by = folder
            outcome = run(job, pool, watcher, file)
            measured, interrupted = outcome.rows, outcome.interrupted
            stable = all(row.status == Status.OK and not row.unstable for row in measured)
            if each.conditions.remember and stable and not interrupted:
                keep(loops, encode(measured))
        rows += measured
        if interrupted:
            break
    devices = {sweep.device: pools[sweep.device].device for sweep, *_ in planned}
    return Reproduction(
        experiment=experiment, rows=rows, devices=tuple(devices.values()), interrupted=interrupted
    )


def _paced(experiment: Experiment, asked: Sweep, *, gpu: bool) -> list[PlannedSweep]:
    """Return the sweeps with the rounds that the user requested, and with parts of the budget.

    A sweep whose rows are remembered keeps its own rounds and budget.
    """
    planned = experiment.sweeps_for(gpu=gpu)
    total = sum(each.points for each in planned)
    paced = []
    for each in planned:
        rounds = asked.options.get("rounds", each.sweep.timing.rounds)
        texts = {**each.sweep.options, "rounds": rounds}
        if asked.timing.budget_s:
            texts["budget"] = f"{max(1.0, asked.timing.budget_s * each.points / total):g}"
        paced.append(each if each.conditions.remember else each._replace(sweep=read_sweep(texts)))
    return paced
