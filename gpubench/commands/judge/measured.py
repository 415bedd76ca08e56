"""Measures what is judged, and the baselines, in rounds of whole problems."""

from collections.abc import Collection

from gpubench.engine.run import AddMore, Outcome, measure
from gpubench.plan.schedule import InRounds
from gpubench.plan.sweep import Sweep
from gpubench.view.progress import SweepProgress
from gpubench.view.tables import console


def measured(
    sweep: Sweep,
    baselines: Collection[str],
    add_more: AddMore | None = None,
    *,
    force: bool,
    resume: bool = False,
) -> Outcome:
    """Return the outcome of a sweep. `baselines` are the kernels that are baselines alone."""
    strategy = InRounds(whole_problems=True, baselines={*baselines})
    with SweepProgress() as watcher:
        outcome = measure(
            sweep, watcher, force=force, resume=resume, strategy=strategy, add_more=add_more
        )
    if outcome.interrupted:
        console(stderr=True).print("interrupted: the verdicts rest on what was measured so far")
    return outcome
