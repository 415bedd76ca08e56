"""What a sweep would do, without doing any of it: `gpubench sweep --dry-run`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from rich.text import Text

from gpubench.backends import find_devices
from gpubench.engine.session import default_output
from gpubench.errors import UsageError
from gpubench.model import Point
from gpubench.options import read_sweep
from gpubench.plan.schedule import estimate, minutes
from gpubench.plan.sweep import plan
from gpubench.plan.tuned import with_tuned_tiles
from gpubench.view.tables import console, spans, table


def print_plan(
    options: Mapping[str, str | None], config: Path | None, resume: Path | None = None
) -> None:
    """The points of each variant, the skips with their reasons, and the time this may take.

    Nothing is compiled, measured or written. Raises what the sweep would raise before it begins.
    """
    if resume:
        raise UsageError("--dry-run: a sweep that is resumed has its points in its file already")
    sweep = read_sweep(options, config)
    device = find_devices(sweep.device)[0][0]
    sweep, wanted, notes = with_tuned_tiles(sweep, device)
    every = plan(sweep, device.backend, device.compute_capability)
    planned = {point: reason for point, reason in every.items() if wanted(point)}
    points = [point for point, reason in planned.items() if reason is None]
    rounds = sweep.timing.rounds
    show = partial(console().print, soft_wrap=True)
    show(Text(f"{device.name}: {len(points)} points in {rounds} rounds; nothing is run"))
    groups: dict[tuple[str, str | None], list[Point]] = {}
    for point, reason in planned.items():
        groups.setdefault((point.variant.name, reason), []).append(point)
    listing = table("variant", "points", "tiles", left={"variant", "tiles"})
    skips = []
    for (name, reason), group in groups.items():
        if reason is None:
            listing.add_row(name, str(len(group)), _tiles(group))
        else:
            skips.append(f"skipped: {f'{name} {_tiles(group)}'.strip()}: {reason}")
    console().print(listing)
    for skip in skips:
        show(Text(skip, style="yellow"))
    for note in notes:
        show(Text(note))
    foreseen = estimate(points, device, sweep.timing)
    show(f"\n{foreseen}; at the least {minutes(foreseen.least_s)}")
    show(Text(f"would write: {sweep.output or default_output(sweep, device.name)}"))


def _tiles(points: Iterable[Point]) -> str:
    return spans(list(dict.fromkeys(str(point.tile) for point in points if point.tile)))
