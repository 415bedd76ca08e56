"""Runs a sweep for a person: its progress, its file, its last lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.text import Text

from gpubench.errors import INTERRUPTED, UsageError
from gpubench.measure.result_file import ResultFile, read_context
from gpubench.measure.session import Outcome, default_output, run
from gpubench.measure.worker import Worker
from gpubench.plan.config import Sweep
from gpubench.plan.ranges import shown
from gpubench.view.progress import progress
from gpubench.view.tables import console


def measure(sweep: Sweep, *, resume: bool, force: bool) -> Outcome:
    """Measure a sweep into its file, or the usual place, and show how far it is."""
    with progress() as watcher, Worker(sweep.device, sweep.timer) as worker:
        path = sweep.output or default_output(sweep, worker.device.name)
        return run(sweep, worker, watcher, ResultFile(path, resume=resume, overwrite=force))


def started_with(path: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The options a sweep was begun with. Raises UsageError where those given now differ."""
    begun: dict[str, str] = read_context(path)["options"] | {"output": str(path)}
    for name, text in given.items():
        if begun.get(name) != text:
            was = f"'{begun[name]}'" if name in begun else "not given"
            raise UsageError(
                f"--resume: {path} was begun with --{name.replace('_', '-')} {was}; "
                "leave it out, or begin another file"
            )
    if "kernels" in begun and "kernels" not in given:  # no file makes code run by itself
        raise UsageError(
            f"--resume: {path} sweeps kernels of a folder, which runs their code: "
            f"add --kernels {shown(begun['kernels'])}"
        )
    return begun


def conclude(outcome: Outcome) -> int:
    """The last lines: where the time went, and the file."""
    err = console(stderr=True)
    err.print(where_time_went(outcome), soft_wrap=True)
    if outcome.interrupted:
        err.print(
            f"interrupted: what was measured is kept; --resume {outcome.path} goes on",
            markup=False,
            soft_wrap=True,
        )
    console().print(Text(f"\n{outcome.path}"), soft_wrap=True)
    if outcome.interrupted:
        return INTERRUPTED
    return 1 if outcome.failed else 0


def where_time_went(outcome: Outcome) -> str:
    """`56.6 s, 70 % of it samples; the rest: compiling 3.1 s, operands 2.0 s, …`."""
    phases = dict(outcome.spent_s)
    # A slow launch may be verified and a sample at once: its time stands under verifying.
    waiting_s = phases.pop("sampling", 0.0) - outcome.device_s
    phases["gates and waiting"] = max(0.0, waiting_s)
    phases["other"] = outcome.wall_s - sum(outcome.spent_s.values())
    rest = ", ".join(f"{name} {spent:.1f} s" for name, spent in phases.items() if round(spent, 1))
    share = 100 * outcome.device_s / outcome.wall_s
    return f"{outcome.wall_s:.1f} s, {share:.0f} % of it samples; the rest: {rest}"
