"""Runs a sweep for a person: its progress, its file, its last lines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from operator import itemgetter
from pathlib import Path

from rich.text import Text

from gpubench.engine.cluster import connected
from gpubench.engine.session import Outcome, default_output, run
from gpubench.engine.shared import run_shared
from gpubench.engine.worker import Worker
from gpubench.errors import INTERRUPTED, UsageError
from gpubench.plan.sweep import Sweep
from gpubench.plan.tuned import with_tuned_tiles
from gpubench.results import store
from gpubench.results.result_file import ResultFile, read_context
from gpubench.text import shown
from gpubench.view.progress import progress
from gpubench.view.tables import console


def measure(sweep: Sweep, *, resume: bool, force: bool, on: str | None = None) -> Outcome:
    """Measure a sweep into its file, or the usual place, and show how far it is.

    `on` names the workers that share it; None: one process of our own measures.
    """
    file = partial(ResultFile, resume=resume, overwrite=force, samples=sweep.samples)
    if on is not None:
        with connected(on, sweep.device) as client, progress() as watcher:
            path = sweep.output or default_output(sweep, "shared")
            return run_shared(sweep, client, watcher, file(path))
    with progress() as watcher, Worker(sweep.device, sweep.timer) as worker:
        path = sweep.output or default_output(sweep, worker.device.name)
        sweep, wanted, notes = with_tuned_tiles(sweep, worker.device)
        for note in notes:
            console(stderr=True).print(note, soft_wrap=True)
        return run(sweep, worker, watcher, file(path), wanted=wanted)


def started_with(path: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The options that a sweep was started with. Raises UsageError where those given now differ."""
    started: dict[str, str] = read_context(path)["options"] | {"output": str(path)}
    if "samples" in given:  # where they are kept changes nothing in the sweep
        started["samples"] = given["samples"]
    for name, text in given.items():
        if started.get(name) != text:
            was = f"'{started[name]}'" if name in started else "not given"
            raise UsageError(
                f"--resume: {path} was started with --{name.replace('_', '-')} {was}; "
                "leave it out, or start another file"
            )
    if "kernels" in started and "kernels" not in given:  # no file makes code run by itself
        raise UsageError(
            f"--resume: {path} sweeps kernels of a folder, which runs their code: "
            f"add --kernels {shown(started['kernels'])}"
        )
    return started


def conclude(outcome: Outcome, save: str | None = None) -> int:
    """The last lines: where the time went, and the files; a whole sweep is saved if asked for."""
    err = console(stderr=True)
    err.print(where_time_went(outcome), soft_wrap=True)
    if outcome.interrupted:
        err.print(
            f"interrupted: what was measured is kept; --resume {outcome.path} continues",
            markup=False,
            soft_wrap=True,
        )
    console().print(Text(f"\n{outcome.path}"), soft_wrap=True)
    if outcome.interrupted:
        return INTERRUPTED
    if save and outcome.timed:
        err.print(Text(f"saved as {save}: {store.save(outcome.rows, save)}"), soft_wrap=True)
    if not outcome.timed:
        err.print("no point was timed: that is a failure, whatever the reason")
    return 0 if outcome.timed and not outcome.failed else 1


def where_time_went(outcome: Outcome) -> str:
    """`56.6 s: sampling 39.6 s (70 %), compiling 3.1 s (5 %), …`: all of this run's wall time."""
    phases = outcome.spent_s | {"other": outcome.wall_s - sum(outcome.spent_s.values())}
    parts = [
        f"{name} {spent_s:.1f} s ({spent_s / outcome.wall_s:.0%})".replace("%)", " %)")
        for name, spent_s in sorted(phases.items(), key=itemgetter(1), reverse=True)
        if round(spent_s, 1) > 0
    ]
    return f"{outcome.wall_s:.1f} s: {', '.join(parts)}"
