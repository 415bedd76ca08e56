"""How pictures look: settings, colours, axes, legends, and the file that a picture becomes."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from gpubench.errors import UsageError
from gpubench.results.output import Output
from gpubench.text import clean, clean_lines
from gpubench.view.pictures import Theme

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C5438"),
    *("#3B9AD1", "#A000FF", "#A59150", "#9182FF", "#6946CD"),
    *("#FF11EE", "#BB0088", "#FF0066", "#007700", "#886699", "#CC0022"),
    *("#0066FF", "#BB55DD", "#557766", "#00AA00", "#EE22AA", "#BB5566"),
)
"""Okabe and Ito's blue, vermillion, green and purple, and eighteen more, each as far from those
before it in Oklab as any that stands out at 3:1 or more from a white page and from GitHub's dark
one. The first ten also differ to colour-blind readers; of more, the markers tell."""

MARKERS: tuple[Any, ...] = (
    *"osD^vPp*<>hd8",
    *((3, 1, 0), (4, 1, 0), (6, 1, 0), (8, 1, 0)),
    *"+1234",
)
"""With the colours, so that a line is known without its colour: as many of each, so that no two
variants of a panel share one. Those in parentheses are stars of so many points."""

DASHES: tuple[Any, ...] = ("-", (0, (3, 1.5)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
"""One a source (a GPU, a version, a file)."""

INK_AND_PAGE: Mapping[Theme, tuple[str, str]] = {
    Theme.LIGHT: ("#1f2328", "#ffffff"),
    Theme.DARK: ("#e6edf3", "#0d1117"),
    Theme.BOTH: ("#797979", "none"),
}
"""The grey of `both` is as far from white as from GitHub's dark page (4.3:1): an SVG in a README is
read on either."""

WIDTH_IN = 8.6
"""As wide as GitHub shows a README: 826 pixels."""

STRIP = 3
"""Panels that stand one below the other; more stand in two columns."""

TITLES_IN = 1.0
"""Height of what stands above and below the axes of a panel."""

TITLE_CHARACTERS, LABEL_CHARACTERS = 90, 40
"""A longer text goes on in the next line."""

WRAPPED_LINES = 3
"""Of a text; what is longer than that ends with an ellipsis."""

MAX_PANELS, MAX_LINES = 24, 200
"""Of a picture, in all its panels: more would take a minute to draw, and nobody would find any."""

TICK_CHARACTERS = 60
"""About so many fit below the axes."""

NARROW = 10**2.3
"""A logarithmic axis spanning less has ticks at 1, 2 and 5, a wider one at the powers of ten."""

DISTINCT = 1.05
"""Sizes nearer to each other than this factor would be drawn on top of each other."""

FORMATS = (".svg", ".png", ".pdf")

FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""What a browser takes: text stays text, and these are about equally wide."""

DPI = 192
"""Twice a screen's, so that a PNG as wide as the README is sharp."""


class Picture(Figure):
    """A matplotlib figure that a notebook shows without pyplot."""

    theme = Theme.LIGHT

    def rendered(self, kind: str, **options: Any) -> bytes:
        """The file of this kind, such as svg."""
        target = io.BytesIO()
        for text in self.findobj(Text):
            text.set_text(clean_lines(text.get_text()))
        with _settings(self.theme):
            self.savefig(target, format=kind, **options)
        return target.getvalue()

    def _repr_png_(self) -> bytes:
        return self.rendered("png", dpi=110)


@contextmanager
def _settings(theme: Theme) -> Iterator[None]:
    """Matplotlib's defaults and ours, whatever a matplotlibrc of the user says."""
    ink, page = INK_AND_PAGE[theme]
    ours: dict[Any, Any] = {
        "figure.facecolor": page,
        "figure.constrained_layout.w_pad": 0.08,
        "figure.constrained_layout.h_pad": 0.12,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "grid.alpha": 0.22,
        "grid.linewidth": 0.6,
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.parse_math": False,  # a $ in a name is a $
        "legend.frameon": False,
        "legend.labelcolor": "linecolor",
        "lines.linewidth": 1.6,
        "lines.markersize": 5,
        "lines.solid_capstyle": "round",
        "svg.fonttype": "none",
        "svg.hashsalt": "gpubench",
        **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "grid.color", "text.color"), ink),
        **dict.fromkeys(("xtick.color", "ytick.color"), ink),
        **dict.fromkeys(("axes.labelsize", "xtick.labelsize", "ytick.labelsize"), 8.5),
        "legend.fontsize": 8.5,
    }
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(ours)
        yield


Panels = Sequence[tuple[str, Callable[[Axes], float]]]
"""The title of each panel, and what draws into its axes and returns their height in inches."""


def compose(headline: str, panels: Panels, theme: Theme, *, strip: bool = False) -> Picture:
    """A figure of panels, one below the other or in a grid; a long legend makes a row higher.

    With `strip` always one below the other, for a page that is as wide as one panel.
    """
    with _settings(theme):
        columns = 1 if strip or len(panels) <= STRIP else 2
        rows = -(-len(panels) // columns)
        picture = Picture(figsize=(columns * WIDTH_IN, WIDTH_IN), layout="constrained")
        picture.theme = theme
        headline = wrapped(headline, TITLE_CHARACTERS)
        picture.suptitle(headline, x=0.01, ha="left", fontsize="large", fontweight="bold")
        grid = picture.subplots(rows, columns, squeeze=False).flatten()
        heights_in = [0.0] * rows
        for place, ((title, draw), axes) in enumerate(zip(panels, grid, strict=False)):
            axes.set_title(wrapped(title, TITLE_CHARACTERS))
            height_in = draw(axes)
            if beside := axes.get_legend():
                height_in = max(height_in, beside.get_window_extent().height / picture.dpi)
            row = place // columns
            heights_in[row] = max(heights_in[row], height_in)
        for axes in grid[len(panels) :]:
            axes.remove()
        grid[0].get_gridspec().set_height_ratios(heights_in)
        picture.set_figheight(0.4 + sum(heights_in) + TITLES_IN * rows)
    return picture


class Look(NamedTuple):
    """How a variant is drawn."""

    colour: str
    marker: Any


def looks(panels: Iterable[Iterable[str]]) -> dict[str, Look]:
    """The look of each variant: the first that no variant it shares a panel with has."""
    neighbours: dict[str, list[str]] = {}
    for panel in panels:
        names = list(dict.fromkeys(panel))
        for name in names:
            neighbours.setdefault(name, []).extend(names)
    taken: dict[str, int] = {}
    for name, others in neighbours.items():
        used = {taken.get(other) for other in others}
        taken[name] = next(number for number in count() if number not in used)
    return {name: look(number) for name, number in taken.items()}


def look(number: int) -> Look:
    """The look of this number."""
    turn = number // len(COLOURS)
    return Look(COLOURS[number % len(COLOURS)], MARKERS[(number + turn) % len(MARKERS)])


def ink() -> str:
    """The theme's colour of text and frames."""
    return str(mpl.rcParams["text.color"])


def legend(axes: Axes, lines: Sequence[Line2D], marks: Sequence[Line2D] = ()) -> None:
    """What the lines are, to the right of the axes, in the order in which they end there; marks."""

    def end(line: Line2D) -> float:
        return float(line.get_ydata()[-1])  # type: ignore[index,arg-type]

    axes.legend(
        handles=[*sorted(lines, key=end, reverse=True), *marks],
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0,
        borderpad=0,
        handlelength=3,
        labelspacing=0.7,
    )


def label(*lines: str) -> str:
    """Text of a legend or of an axis, what is too long for a line in several."""
    return "\n".join(wrapped(line, LABEL_CHARACTERS) for line in lines if line)


def wrapped(text: str, characters: int) -> str:
    """A text in lines of so many characters."""
    return fill(text, characters, max_lines=WRAPPED_LINES, placeholder=" …")


def require_drawable(panels: int, lines: int) -> None:
    """Raises UsageError where a picture would have too many panels or lines."""
    if panels > MAX_PANELS or lines > MAX_LINES:
        raise UsageError(
            f"a picture of {panels:,} panels and {lines:,} lines; at most {MAX_PANELS} and "
            f"{MAX_LINES} are drawn: choose with --sizes, --dtypes, --variants or --experiments "
            "of 'gpubench plot'"
        )


def line_count(labels: Iterable[str]) -> int:
    """Lines of the longest of some labels."""
    return max(text.count("\n") + 1 for text in labels)


def log_axis(axes: Axes, which: Literal["x", "y"]) -> None:
    """A logarithmic axis with plain numbers: 0.5, 20, 1,000. Its data are drawn already."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < NARROW else (1,)))
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.set_minor_formatter(NullFormatter())


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """A y axis of rows, the first on top, with a name beside each."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def size_axis(axes: Axes, sizes: Mapping[str, float], title: str) -> dict[str, float]:
    """An x axis of sizes with their names; the place of each.

    Logarithmic, or evenly spaced where two sizes are nearly the same. The name of a rectangle has a
    line for each extent. What has no room for its name has no tick.
    """
    ordered = sorted(sizes, key=lambda name: sizes[name])
    even = any(sizes[high] / sizes[low] < DISTINCT for low, high in pairwise(ordered))
    places = {name: float(index) if even else sizes[name] for index, name in enumerate(ordered)}
    if not even:
        axes.set_xscale("log", base=2)
    along = {name: place if even else math.log(place) for name, place in places.items()}
    a_character = (along[ordered[-1]] - along[ordered[0]]) / TICK_CHARACTERS
    texts = {name: name.replace("x", "×\n") for name in ordered}
    named: list[str] = []
    for name in ordered:
        characters = max(map(len, texts[name].split("\n"))) + 1
        if not named or along[name] - along[named[-1]] > characters * a_character:
            named.append(name)
    axes.set_xticks([places[name] for name in named], [texts[name] for name in named])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(title)
    return places


def claim(path: Path, *, force: bool) -> Output:
    """The picture's file. Raises UsageError if it cannot or must not be written there."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--output: '{path}' does not end in {', '.join(FORMATS)}")
    return Output(path, overwrite=force)


def save(picture: Picture, output: Output, description: str = "") -> None:
    """Write the picture in the format that the name's suffix says, or leave what was there.

    `description` goes into an SVG: what it was made from. Raises UsageError if it cannot write.
    """
    kind = output.path.suffix.lower().removeprefix(".")
    if kind == "svg":
        content = svg(picture, description).encode()
    else:
        undated = {"Software": None} if kind == "png" else {"CreationDate": None}
        content = picture.rendered(kind, dpi=DPI, metadata=undated)
    output.write(content)


def svg(picture: Picture, description: str = "") -> str:
    """The picture as SVG: the same text for the same picture, on any day."""
    metadata = {"Date": None, "Description": clean(description) or None, "Creator": None}
    text = picture.rendered("svg", metadata=metadata).decode()
    text = text.replace("'DejaVu Sans'", FONTS)
    # Coordinates to a thousandth of a point; what stands between tags stays as it is.
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d{3})\d+", r"\1", tag[0]), text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
