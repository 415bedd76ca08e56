"""The last lines of a command that measured: the time of each phase, and the files."""

from __future__ import annotations

import shlex
from operator import itemgetter
from typing import TYPE_CHECKING

from gpubench.errors import INTERRUPTED
from gpubench.view.tables import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpubench.engine.run import Outcome

MAX_NAMED = 3
"""Maximum number of kernels without a dtype that are named."""


def conclude(outcome: Outcome, continued_by: Path | None = None) -> int:
    """Print the last lines of an outcome that has a file, and return the exit code.

    `continued_by` is the path that `--resume` takes, if it is not that of the outcome.
    """
    if outcome.absent:
        say(without_dtypes(outcome.absent), err=True)
    say(where_time_went(outcome), err=True)
    if outcome.interrupted:
        path = shlex.quote(str(continued_by or outcome.path))
        say(f"interrupted: what was measured is kept; --resume {path} continues", err=True)
    say(f"\n{outcome.path}")
    if outcome.interrupted:
        return INTERRUPTED
    if outcome.saved:
        say(f"saved as {outcome.saved.parent.name}: {outcome.saved}", err=True)
    if not outcome.timed:
        say("no point was timed, so the command failed", err=True)
    return 0 if outcome.timed and not outcome.failed else 1


def without_dtypes(absent: Mapping[str, Sequence[str]]) -> str:
    """Return `left out: cpu_blas has no int32`, or only the number of kernels if they are many."""
    parts = []
    for dtype, names in absent.items():
        listed = f"{len(names)} kernels" if len(names) > MAX_NAMED else ", ".join(names)
        parts.append(f"{listed} {'has' if len(names) == 1 else 'have'} no {dtype}")
    return f"left out: {'; '.join(parts)}"


def where_time_went(outcome: Outcome) -> str:
    """Return the wall time by phase: `56.6 s: sampling 39.6 s (70 %), compiling 3.1 s (5 %), …`."""
    phases = {**outcome.spent_s, "other": outcome.wall_s - sum(outcome.spent_s.values())}
    parts = [
        f"{name} {spent_s:.1f} s ({spent_s / outcome.wall_s:.0%})".replace("%)", " %)")
        for name, spent_s in sorted(phases.items(), key=itemgetter(1), reverse=True)
        if round(spent_s, 1) > 0
    ]
    return f"{outcome.wall_s:.1f} s: {', '.join(parts)}"
