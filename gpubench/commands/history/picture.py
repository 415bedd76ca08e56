"""The picture of `gpubench history`: a line per point, over the times at which it was saved."""

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes

from gpubench.commands.history.points import DIGITS, TO_SECONDS, Histories, Saved, distinct
from gpubench.results.output import Output
from gpubench.text import counted
from gpubench.view.numbers import milliseconds
from gpubench.view.pictures import style
from gpubench.view.row_tables import DISAGREE

AXES_IN = 3.0
"""Height of the axes of a panel."""

MAX_NAMES = 8
"""Maximum number of times that are named below the axis."""

YEAR, TO_MINUTES = len("2026-"), len("2026-11-22 04:25")
"""Number of characters of a time."""


def draw(name: str, points: Histories, output: Output) -> None:
    """Write the picture, with gaps where rounds disagree. Raises UsageError."""
    style.require_drawable(len(points), sum(map(len, points.values())))
    coloured = {heading: _leading(group) for heading, group in points.items()}
    variants = {variant for names in coloured.values() for variant in names.values()}
    looks = style.looks([variants], filter(style.is_library, variants))
    panels = [
        (heading, partial(_panel, group, {n: looks[v] for n, v in coloured[heading].items()}))
        for heading, group in points.items()
    ]
    style.save(
        style.compose(
            f"Time over results saved as {name}", panels, style.default_theme(output.path)
        ),
        output,
    )


def _leading(points: Mapping[str, Sequence[Saved]]) -> dict[str, str]:
    """Return the variants of the points drawn in colour: the fastest points, and libraries."""
    newest = sorted(
        ((name, history[-1][1]) for name, history in points.items()),
        key=lambda item: item[1].median_us or 0.0,
    )
    kernels = [(name, row.variant) for name, row in newest if not style.is_library(row.variant)]
    libraries = [(name, row.variant) for name, row in newest if style.is_library(row.variant)]
    return dict([*kernels[: style.MAX_COLOURED], *libraries])


def _panel(points: Mapping[str, Sequence[Saved]], looks: style.Looks, axes: Axes) -> float:
    commits = {time: row.commit or "" for history in points.values() for time, row in history}
    places = {time: place for place, time in enumerate(sorted(commits))}
    lines = []
    for name, history in points.items():
        stable = [(places[time], row) for time, row in history if not row.unstable]
        if not stable:
            continue
        along, rows = zip(*stable, strict=True)
        look = looks.get(name, style.FAINT)
        style.interval(axes, along, rows, look.options["color"])
        text = style.label(name, f"{milliseconds(rows[-1].median_us)} ms")
        times_ms = [(row.median_us or 0.0) / 1e3 for row in rows]
        lines += axes.plot(along, times_ms, **look.options, label=text)
    named = list(places)[:: -(-len(places) // MAX_NAMES)]
    dates = distinct(named, TO_MINUTES, TO_SECONDS)
    start = YEAR if len({time[:YEAR] for time in named}) == 1 else 0
    axes.set_xticks(
        [places[time] for time in named],
        [
            f"{date[start:]}\n{commits[time][:DIGITS]}".replace(" ", "\n")
            for time, date in zip(named, dates, strict=True)
        ],
    )
    axes.set_xlim(-0.3, len(places) - 0.7)
    flagged = sum(row.unstable for history in points.values() for _, row in history)
    left_out = f"; not drawn: {counted(flagged, 'time')} whose {DISAGREE}" if flagged else ""
    axes.set_xlabel(f"saved (UTC), and the commit of gpubench{left_out}")
    style.y_title(axes, "time per launch, ms")
    style.log_axis(axes, "y")
    style.legend(axes, lines)
    return AXES_IN
