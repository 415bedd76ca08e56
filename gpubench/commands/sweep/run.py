"""What `gpubench sweep` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpubench.commands.sweep.curve import curves
from gpubench.options import option_texts, read_sweep
from gpubench.view.running import conclude, measure, started_with
from gpubench.view.tables import console, results


def run_sweep(
    options: Mapping[str, str | None],
    config: Path | None,
    *,
    resume: Path | None = None,
    force: bool = False,
) -> int:
    """`gpubench sweep`: the exit code."""
    if resume:
        options, config = started_with(resume, option_texts(options, config)), None
    sweep = read_sweep(options, config)
    outcome = measure(sweep, resume=resume is not None, force=force)
    screen = console()
    screen.print(results(outcome.rows))
    if screen.is_terminal and screen.encoding.startswith("utf") and (drawn := curves(outcome.rows)):
        screen.print(drawn)
    return conclude(outcome)
