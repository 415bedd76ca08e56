"""What a sweep would do, without doing any of it: `gpubench sweep --dry-run`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.text import Text

from gpubench.backends import find_devices
from gpubench.errors import UsageError
from gpubench.hardware.peaks import peak_gflops
from gpubench.measure.session import default_output
from gpubench.model import Device, Point, Timing
from gpubench.options import read_sweep
from gpubench.plan.schedule import sampling_s
from gpubench.plan.sweep import plan
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
    planned = plan(sweep, device.backend, device.compute_capability)
    points = [point for point, reason in planned.items() if reason is None]
    rounds = sweep.timing.rounds
    screen = console()
    screen.print(
        Text(f"{device.name}: {len(points)} points in {rounds} rounds; nothing is run"),
        soft_wrap=True,
    )
    listing = table("variant", "points", "tiles", left={"variant", "tiles"})
    for variant in dict.fromkeys(point.variant for point in points):
        of_variant = [point for point in points if point.variant is variant]
        listing.add_row(variant.name, str(len(of_variant)), _tiles(of_variant))
    screen.print(listing)
    for name, reason in dict.fromkeys((p.variant.name, r) for p, r in planned.items() if r):
        skipped = [p for p, r in planned.items() if (p.variant.name, r) == (name, reason)]
        screen.print(
            Text(f"skipped: {f'{name} {_tiles(skipped)}'.strip()}: {reason}", style="yellow"),
            soft_wrap=True,
        )
    least_s, max_s = estimated_s(points, device, sweep.timing)
    screen.print(
        f"\nestimated: {_minutes(least_s)} to {_minutes(max_s)} of sampling; compiling and "
        f"verifying come on top.\nFrom the policy: at the least each point's fewest samples; "
        f"at the most {sweep.timing.max_wall_s:g} s a point.\nSlow launches take longer.",
        soft_wrap=True,
    )
    path = sweep.output or default_output(sweep, device.name)
    screen.print(Text(f"would write: {path}"), soft_wrap=True)


def estimated_s(points: Iterable[Point], device: Device, timing: Timing) -> tuple[float, float]:
    """Seconds of sampling for all points and rounds, at the least and at the most.

    A launch takes no less than its operations do at the device's peak, where that is known. A
    budget leaves each point its fewest samples.
    """
    least_s = max_s = 0.0
    for point in points:
        peak = peak_gflops(device, point.problem.dtype)
        launch_s = point.problem.flops / (peak * 1e9) if peak else 0.0
        low, high = sampling_s(timing, launch_s)
        least_s += timing.rounds * low
        max_s += timing.rounds * high
    if timing.budget_s is not None:
        max_s = min(max_s, max(least_s, timing.budget_s))
    return least_s, max_s


def _tiles(points: Iterable[Point]) -> str:
    return spans(list(dict.fromkeys(str(point.tile) for point in points if point.tile)))


def _minutes(seconds: float) -> str:
    """`1:05`, rounded up."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}:{rest:02}"
