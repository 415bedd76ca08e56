"""How every picture looks: colours, marks, sizes, and labels that do not overlap."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from gpubench.row import Row
from gpubench.view.pictures.series import extent

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C5438", "#3B9AD1")
"""Okabe and Ito's blue, vermillion, green and purple, their sky blue darker, and a brown: each
stands out at 3:1 or more from a white page and from GitHub's dark one, and from the others also to
colour-blind readers."""

MARKS = "osD^vPX"
"""With the colours, so that a line is known without its colour: 42 pairs before one repeats."""

DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
"""One a source (a GPU, a version, a file)."""

THEMES: Mapping[str, tuple[str, str]] = {
    "light": ("#1f2328", "#ffffff"),
    "dark": ("#e6edf3", "#0d1117"),
    "both": ("#797979", "none"),
}
"""Ink and page. `both` is a grey as far from white as from GitHub's dark page (4.3:1), on no page:
an SVG in a README is read on either."""

WIDTH_IN = 8.6
"""As wide as GitHub shows a README: 826 pixels."""

FONT_PT = 10.0
SMALL_PT = 8.5
LINE_IN = 1.3 * SMALL_PT / 72
GLYPH_IN = 0.65 * SMALL_PT / 72
"""An average glyph of the font, rather wide: a browser may take another font."""

NARROW = 10**2.3
"""A logarithmic axis spanning less has ticks at 1, 2 and 5, a wider one at the powers of ten."""

DISTINCT = 1.05
"""Extents nearer to each other than this factor would draw their sizes on top of each other."""

LEFT_IN, TOP_IN, BOTTOM_IN, TITLE_IN = 0.85, 0.42, 0.6, 0.48


def settings(theme: str) -> Any:
    """Matplotlib's rcParams for a theme."""
    ink, page = THEMES[theme]
    parts = ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color")
    return dict.fromkeys(parts, ink) | {
        "figure.facecolor": page,
        "savefig.facecolor": page,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": ink,
        "grid.alpha": 0.22,
        "grid.linewidth": 0.6,
        "font.family": "DejaVu Sans",
        "font.size": FONT_PT,
        "text.parse_math": False,  # a $ in a name is a $
        "axes.titlesize": FONT_PT,
        "axes.titlelocation": "left",
        "axes.labelsize": SMALL_PT,
        "xtick.labelsize": SMALL_PT,
        "ytick.labelsize": SMALL_PT,
        "legend.fontsize": SMALL_PT,
        "legend.frameon": False,
        "lines.linewidth": 1.6,
        "lines.solid_capstyle": "round",
    }


class Picture(Figure):
    """A matplotlib figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        target = io.BytesIO()
        self.savefig(target, format="png", dpi=110)
        return target.getvalue()


def sheet(
    headline: str, heights_in: Sequence[float], right_in: float, left_in: float = LEFT_IN
) -> tuple[Picture, list[Axes]]:
    """A figure with axes of the given heights one below the other, room for labels on both sides.

    Everything is placed in inches, so that no layout engine moves it from version to version.
    """
    height_in = TOP_IN + sum(TITLE_IN + one + BOTTOM_IN for one in heights_in)
    figure = Picture(figsize=(WIDTH_IN, height_in))
    left, width = left_in / WIDTH_IN, (WIDTH_IN - left_in - right_in) / WIDTH_IN
    top = 1 - 0.12 / height_in
    figure.text(left, top, headline, fontsize=FONT_PT + 2, fontweight="bold", va="top")
    every = []
    bottom_in = height_in - TOP_IN
    for one in heights_in:
        bottom_in -= TITLE_IN + one
        every.append(figure.add_axes((left, bottom_in / height_in, width, one / height_in)))
        bottom_in -= BOTTOM_IN
    return figure, every


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a series is drawn."""

    colour: str
    mark: str
    dashes: Any


def looks(variants: Iterable[str], labels: Iterable[str]) -> dict[tuple[str, str], Look]:
    """The look of every variant and source: colour and mark say the variant, dashes the source."""
    names, sources = list(dict.fromkeys(variants)), list(dict.fromkeys(labels))
    return {
        (name, source): Look(
            colour=COLOURS[i % len(COLOURS)],
            mark=MARKS[i % len(MARKS)],
            dashes=DASHES[j % len(DASHES)],
        )
        for i, name in enumerate(names)
        for j, source in enumerate(sources)
    }


def log_ticks(axes: Axes, which: str) -> None:
    """A logarithmic axis with plain numbers: 0.5, 20, 1,000."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    low, high = axis.get_view_interval()
    narrow = high / low < NARROW
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def fixed_ticks(axes: Axes, at: Sequence[float], names: Sequence[str]) -> None:
    """Ticks of the x axis at these places and no others."""
    axes.xaxis.set_major_locator(FixedLocator(list(at)))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.set_xticklabels(list(names))


def head(axes: Axes, title: str, entries: Sequence[tuple[str, dict[str, Any]]] = ()) -> None:
    """The title above the axes, and between them what marks and dashes mean."""
    axes.set_title(title, pad=20 if entries else 6)
    plain: dict[str, Any] = {"color": ink_of(axes), "markersize": 5, "linestyle": ""}
    handles = [Line2D([], [], **{**plain, **drawn}, label=text) for text, drawn in entries]
    if handles:
        axes.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=len(handles),
            borderaxespad=0.1,
            borderpad=0.2,
            handletextpad=0.4,
            columnspacing=1.4,
        )


def source_key(labels: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Entries for `head` that say which dashes are which source."""
    return [
        (label, {"linestyle": DASHES[number % len(DASHES)], "marker": ""})
        for number, label in enumerate(labels)
        if label
    ]


def ink_of(axes: Axes) -> str:
    """The theme's colour of text and frames."""
    return str(axes.xaxis.label.get_color())


def size_ticks(axes: Axes, rows: Iterable[Row]) -> dict[str, float]:
    """An x axis of sizes, each named as `--sizes` takes it; the place of each.

    Logarithmic by the problem's extent, or evenly spaced where two shapes have the same.
    """
    sizes = {row.size: extent(row) for row in sorted(rows, key=extent)}
    places = list(sizes.values())
    if any(other / one < DISTINCT for one, other in pairwise(places)):
        sizes = {name: float(number) for number, name in enumerate(sizes)}
        axes.set_xlim(-0.5, len(sizes) - 0.5)
    else:
        axes.set_xscale("log", base=2)
        axes.set_xlim(places[0] / 1.12, places[-1] * 1.12)
    names = list(sizes)
    width_in = axes.get_position().width * WIDTH_IN
    while len(names) > 1 and len(names) * (max(map(len, names)) + 1) * GLYPH_IN > width_in:
        names = names[1::2] if len(names) % 2 == 0 else names[::2]
    shown = [name.replace("x", "×") for name in names]
    fixed_ticks(axes, [sizes[name] for name in names], shown)
    axes.set_xlabel("matrix size")
    return sizes
