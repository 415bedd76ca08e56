"""The picture of `gpubench history`: a line per point, over the times at which it was saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes

from gpubench.commands.history.points import DIGITS, Histories, Saved
from gpubench.results.output import Output
from gpubench.view.pictures import style
from gpubench.view.tables import milliseconds

AXES_IN = 3.0
"""Height of the axes of a panel."""

MAX_NAMES = 8
"""Maximum number of times that are named below the axis."""


def draw(name: str, points: Histories, output: Output) -> None:
    """Write the picture, with gaps where rounds disagree. Raises UsageError."""
    style.require_drawable(len(points), sum(map(len, points.values())))
    panels = [(heading, partial(_panel, group)) for heading, group in points.items()]
    style.save(
        style.compose(
            f"Time over results saved as {name}", panels, style.default_theme(output.path)
        ),
        output,
    )


def _panel(points: Mapping[str, Sequence[Saved]], axes: Axes) -> float:
    commits = {time: row.commit or "" for history in points.values() for time, row in history}
    places = {time: place for place, time in enumerate(sorted(commits))}
    looks = style.looks([points])
    lines = []
    for name, history in points.items():
        stable = [(places[time], row) for time, row in history if not row.unstable]
        if not stable:
            continue
        along, rows = zip(*stable, strict=True)
        look = looks[name]
        style.interval(axes, along, rows, look.colour)
        text = style.label(name, f"{milliseconds(rows[-1].median_us)} ms")
        times_ms = [(row.median_us or 0.0) / 1e3 for row in rows]
        lines += axes.plot(along, times_ms, color=look.colour, marker=look.marker, label=text)
    named = list(places)[:: -(-len(places) // MAX_NAMES)]
    axes.set_xticks(
        [places[time] for time in named],
        [f"{time[5:16]}\n{commits[time][:DIGITS]}" for time in named],
    )
    axes.set_xlabel("saved (UTC), and the commit of gpubench")
    axes.set_ylabel("time per launch, ms")
    style.log_axis(axes, "y")
    style.legend(axes, lines)
    return AXES_IN
