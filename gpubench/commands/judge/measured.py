"""Measures the kernels to judge, and their baselines, in rounds of whole problems."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpubench import options as option
from gpubench.engine.run import AddMore, Outcome, measure
from gpubench.errors import UsageError
from gpubench.plan.schedule import InRounds
from gpubench.plan.sweep import Sweep
from gpubench.stats.intervals import MIN_ROUNDS
from gpubench.view.progress import SweepProgress
from gpubench.view.tables import console


def read_judged(
    values: Mapping[str, Any], defaults: Sweep, solutions: Sequence[Path] | None = None
) -> Sweep:
    """Return the sweep that the options describe. Raises UsageError for too few rounds."""
    sweep = option.read_sweep(values, defaults=defaults, solutions=solutions)
    if sweep.timing.rounds < MIN_ROUNDS:
        raise UsageError(f"--rounds: a verdict needs at least {MIN_ROUNDS} rounds")
    return sweep


def measured(
    sweep: Sweep,
    baselines: Collection[str],
    add_more: AddMore | None = None,
    *,
    force: bool,
    resume: bool = False,
) -> Outcome:
    """Measure a sweep, and return the outcome. `baselines` names kernels that are not judged."""
    strategy = InRounds(whole_problems=True, baselines={*baselines})
    with SweepProgress() as watcher:
        outcome = measure(
            sweep, watcher, force=force, resume=resume, strategy=strategy, add_more=add_more
        )
    if outcome.interrupted:
        console(stderr=True).print("interrupted: the verdicts rest on what was measured so far")
    return outcome
