"""The picture of `gpubench history`: a line a point, over the times it was saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes

from gpubench.commands.history.points import Histories, Saved
from gpubench.results.output import Output
from gpubench.view.pictures import Theme, style
from gpubench.view.tables import milliseconds

AXES_IN = 3.0

NAMED = 8
"""So many times, evenly spread, have a name below the axis."""


def draw(name: str, found: Histories, output: Output) -> None:
    """Write the picture; a gap is left where rounds disagree. Raises UsageError."""
    theme = Theme.BOTH if output.path.suffix.lower() == ".svg" else Theme.LIGHT
    lines = sum(map(len, found.values()))
    style.require_drawable(len(found), lines)
    panels = [(heading, partial(_panel, points)) for heading, points in found.items()]
    style.save(style.compose(f"Time over results saved as {name}", panels, theme), output)


def _panel(points: Mapping[str, Sequence[Saved]], axes: Axes) -> float:
    at = {when: place for place, when in enumerate(_times(points))}
    commits = {when: row.commit or "" for history in points.values() for when, row in history}
    look_of = style.looks([points])
    lines = []
    for name, history in points.items():
        stable = [(at[when], row) for when, row in history if not row.unstable]
        if not stable:
            continue
        places = [place for place, _ in stable]
        rows = [row for _, row in stable]
        look = look_of[name]
        axes.fill_between(
            places,
            [(row.ci_low_us or row.median_us or 0.0) / 1e3 for row in rows],
            [(row.ci_high_us or row.median_us or 0.0) / 1e3 for row in rows],
            color=look.colour,
            alpha=0.25,
            linewidth=0,
        )
        text = style.label(name, f"{milliseconds(rows[-1].median_us)} ms")
        times_ms = [(row.median_us or 0.0) / 1e3 for row in rows]
        lines += axes.plot(places, times_ms, color=look.colour, marker=look.marker, label=text)
    step = -(-len(at) // NAMED)
    named = list(at)[::step]
    axes.set_xticks(
        [at[when] for when in named], [f"{when[5:16]}\n{commits[when][:8]}" for when in named]
    )
    axes.set_xlabel("saved (UTC), and the commit of gpubench")
    axes.set_ylabel("time per launch, ms")
    style.log_axis(axes, "y")
    style.legend(axes, lines)
    return AXES_IN


def _times(points: Mapping[str, Sequence[Saved]]) -> list[str]:
    """Every time that something was saved, in order."""
    return sorted({when for history in points.values() for when, _ in history})
