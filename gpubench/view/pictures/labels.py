"""Names beside the ends of lines, none over another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpubench.view.pictures.style import GLYPH_IN, LINE_IN, SMALL_PT, ink_of

LONGEST = 32
"""Letters of the longest label that is written whole."""


NAME_AND_FIGURE = 2.15
"""Lines that a name takes with its figure below it."""


def height_for(labels: int, least_in: float) -> float:
    """Inches of axes beside which so many labels fit, `least_in` or more."""
    return max(least_in, labels * LINE_IN * NAME_AND_FIGURE)


def room_for(labels: Iterable[str]) -> float:
    """Inches that the longest of some labels takes, with its distance from the axes."""
    return 0.35 + GLYPH_IN * max((len(short(label)) for label in labels), default=0)


def short(label: str) -> str:
    """A label that leaves room for the picture."""
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"


@dataclass(frozen=True, kw_only=True)
class EndLabel:
    """What is written beside the end of a line: a name, and in smaller letters its figure."""

    x: float
    y: float
    """The end, in the units of the axes."""

    name: str
    figure: str = ""
    colour: str = ""

    @property
    def height_in(self) -> float:
        """Inches that it takes."""
        return LINE_IN * (NAME_AND_FIGURE if self.figure else 1.15)


def label_ends(axes: Axes, labels: Sequence[EndLabel]) -> None:
    """Write labels to the right of the axes, none over another, each tied to its line's end.

    The limits of the axes must be final.
    """
    box = axes.get_position()
    height_in = box.height * cast(Figure, axes.get_figure(root=True)).get_size_inches()[1]
    to_axes = axes.transData + axes.transAxes.inverted()
    wanted = [float(to_axes.transform((one.x, one.y))[1]) * height_in for one in labels]
    places = spread(wanted, [one.height_in for one in labels], 0.0, height_in)
    for one, place in zip(labels, places, strict=True):
        colour = one.colour or ink_of(axes)
        at = place / height_in
        axes.annotate(
            "",
            xy=(one.x, one.y),
            xytext=(1.015, at),
            textcoords="axes fraction",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.6,
                "alpha": 0.6,
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )
        shift = LINE_IN * 0.5 / height_in if one.figure else 0.0
        text: dict[str, Any] = {
            "transform": axes.transAxes,
            "va": "center_baseline",
            "color": colour,
        }
        axes.text(1.02, at + shift, short(one.name), fontsize=SMALL_PT, fontweight="bold", **text)
        if one.figure:
            axes.text(1.02, at - shift, one.figure, fontsize=SMALL_PT, **text)


def spread(
    wanted: Sequence[float], heights: Sequence[float], low: float, high: float
) -> list[float]:
    """Centres as near to the wanted ones as heights allow, in the same order and within limits.

    Neighbours that collide become a block at their mean place; where all together do not fit
    between `low` and `high`, they begin at `low` and go on beyond `high`.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    blocks: list[tuple[float, float, list[int]]] = []  # bottom, height, members
    for index in order:
        bottom, height, members = wanted[index] - heights[index] / 2, heights[index], [index]
        bottom = max(low, min(bottom, high - height))
        while blocks and blocks[-1][0] + blocks[-1][1] > bottom:
            below, of_below, others = blocks.pop()
            together = height + of_below
            weight = len(members) / (len(members) + len(others))
            bottom = below + (bottom - of_below - below) * weight
            bottom = max(low, min(bottom, high - together))
            height, members = together, [*others, *members]
        blocks.append((bottom, height, members))
    places = [0.0] * len(wanted)
    for bottom, _, members in blocks:
        for position, index in enumerate(members):
            below = sum(heights[other] for other in members[:position])
            places[index] = bottom + below + heights[index] / 2
    return places
