"""`--dry-run`: what a job would measure, without measuring."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench.errors import UsageError
from gpubench.model import Point
from gpubench.plan.schedule import minutes
from gpubench.results.result_file import default_path
from gpubench.text import counted
from gpubench.view.conclusion import without_dtypes
from gpubench.view.numbers import spans
from gpubench.view.tables import console, say, table

if TYPE_CHECKING:
    from gpubench.engine.prepare import Job


def print_plan(job: Job, ending: str, *, resume: Path | None = None) -> None:
    """Print the points of each variant, the skips with their reasons, and the expected time.

    `ending` is the end of the default file's name. Raises UsageError for a sweep to resume.
    """
    if resume:
        raise UsageError("--dry-run: leave out --resume: the file has the points of its sweep")
    rounds = job.sweep.timing.rounds
    how = "to race" if job.strategy.is_race else f"in {counted(rounds, 'round')}"
    say(f"{job.device.name}: {counted(len(job.points), 'point')} {how}; nothing is run")
    groups: dict[tuple[str, str | None], list[Point]] = {}
    for point, reason in job.planned.items():
        groups.setdefault((point.variant.name, reason), []).append(point)
    listing = table("variant", "points", "tiles", left={"variant", "tiles"})
    skips = []
    for (name, reason), points in groups.items():
        if reason is None:
            listing.add_row(name, str(len(points)), _tiles(points))
        else:
            skips.append(f"skipped: {f'{name} {_tiles(points)}'.strip()}: {reason}")
    console().print(listing)
    for skip in skips:
        say(skip, "yellow")
    for note in (*([without_dtypes(job.absent)] if job.absent else []), *job.notes):
        say(note)
    foreseen = job.forecast()
    say(f"\n{foreseen}; at the least {minutes(foreseen.least_s)}")
    say(f"would write: {job.sweep.output or default_path(job.device.name, ending)}")


def _tiles(points: Iterable[Point]) -> str:
    return spans(list(dict.fromkeys(str(point.tile) for point in points if point.tile)))
