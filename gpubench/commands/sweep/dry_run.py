"""What a sweep would do, without doing any of it: `gpubench sweep --dry-run`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
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
    least_s, max_s = estimated_s(points, device, sweep.timing)
    show(
        f"\nestimated: {_minutes(least_s)} to {_minutes(max_s)} of sampling; compiling and "
        f"verifying come on top.\nFrom the policy: at the least each point's fewest samples; "
        f"at the most {sweep.timing.max_wall_s:g} s a point.\nSlow launches take longer."
    )
    show(Text(f"would write: {sweep.output or default_output(sweep, device.name)}"))


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
