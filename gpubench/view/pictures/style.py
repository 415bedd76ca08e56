"""Defines the look of pictures (colours, axes, legends), and writes pictures into files."""

import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import chain, count, cycle
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, NamedTuple
from zlib import crc32

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

from gpubench.files import Output
from gpubench.plan.ranges import require_ending
from gpubench.results.row import Row
from gpubench.text import clean, clean_lines
from gpubench.view.pictures import Theme
from gpubench.view.row_tables import DISAGREE

COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C5438",
    "#3B9AD1", "#A000FF", "#A59150", "#9182FF", "#6946CD",
    "#FF11EE", "#BB0088", "#FF0066", "#007700", "#886699", "#CC0022",
    "#0066FF", "#BB55DD", "#557766", "#00AA00", "#EE22AA", "#BB5566",
)  # fmt: skip
"""Okabe and Ito's blue, vermillion, green and purple, and eighteen more colours. Each of the
eighteen colours has the largest distance in Oklab from the colours before it, among the colours
with a contrast of 3:1 to a white page and to GitHub's dark page."""

SAFE = 10
"""Colour-blind readers can distinguish this number of colours at the beginning of `COLOURS`."""

MAX_COLOURED = 8
"""Maximum number of variants of a panel that are drawn in colour. All other variants are grey."""

MARKERS: tuple[Any, ...] = (*"osD^vPp*<>hd8", *((n, 1, 0) for n in (3, 4, 6, 8)), *"+1234")
"""Markers by which lines can be distinguished without colours. Each colour has a marker."""

LIBRARY_MARKERS = ".x+1"  # markers of libraries, which are drawn in the colour of text

DASHES: tuple[Any, ...] = ("-", (0, (3, 1.5)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
"""Line styles of the sources of a picture. A source is a GPU, a version or a file."""

INK_AND_PAGE: Mapping[Theme, tuple[str, str]] = {
    Theme.LIGHT: ("#1f2328", "#ffffff"),
    Theme.BOTH: ("#797979", "none"),
}
"""Maps a theme to the colour of text and lines, and to the colour of the page. The grey has the
same contrast (4.3:1) to white and to GitHub's dark page."""

STYLE = Path(__file__).with_name("pictures.mplstyle")

WIDTH_IN = 8.6  # width of a picture in inches: the width of a README on GitHub, 826 pixels
TITLES_IN = 1.15  # height in inches of the titles above and below a panel's axes
LINE_IN = 0.23  # height in inches of one line of the text beside bars

TITLE_CHARACTERS = 90
"""Maximum number of characters in a line of a title. A longer line is wrapped."""

LABEL_CHARACTERS = 40
"""Maximum number of characters in a line of a label. A longer line is wrapped."""

WRAPPED_LINES = 3
"""Maximum number of lines of a text. A longer text is cut, and ends with an ellipsis."""

KEY_LINES = 8  # maximum number of lines of text below an axis that explain the numbers of problems
TICK_CHARACTERS = 60  # approximate number of characters that fit below the axes

NARROW = 10**2.3
"""Ratio of the ends of a logarithmic axis. Below this ratio, the axis also has ticks at 2 and 5,
not only at powers of ten."""

FORMATS = (".svg", ".png", ".pdf")

FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""Fonts for an SVG. The fonts have about equal widths, because the program that shows the SVG
chooses a font."""

DPI = 192
"""Dots per inch of a PNG. Pictures are sharp, because a usual screen has half this number."""


class Picture(Figure):
    """A matplotlib figure that a notebook can show without using pyplot."""

    theme = Theme.LIGHT

    def rendered(self, kind: str, **options: Any) -> bytes:
        """Return the content of a picture file of the format `kind`, such as svg."""
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
    """Use matplotlib's defaults and gpubench's settings, and ignore a matplotlibrc of the user."""
    ink, page = INK_AND_PAGE[theme]
    inked: tuple[Any, ...] = ("axes.edgecolor", "axes.labelcolor", "grid.color", "text.color")
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(mpl.rc_params_from_file(STYLE, use_default_template=False))
        mpl.rcParams.update(dict.fromkeys((*inked, "xtick.color", "ytick.color"), ink))
        mpl.rcParams["figure.facecolor"] = page
        yield


Panels = Sequence[tuple[str, Callable[[Axes], float]]]
"""Pairs of a panel's title and a function. The function draws into the panel's axes, and returns
the height of the axes in inches."""


def compose(headline: str, panels: Panels, theme: Theme) -> Picture:
    """Return a figure with the panels below each other. A long legend makes a panel higher."""
    with _settings(theme):
        picture = Picture(figsize=(WIDTH_IN, WIDTH_IN), layout="constrained")
        picture.theme = theme
        headline = "\n".join(wrapped(line, TITLE_CHARACTERS) for line in headline.split("\n"))
        picture.suptitle(headline, x=0.01, ha="left", fontsize="large", fontweight="bold")
        grid = picture.subplots(len(panels), squeeze=False).flatten()
        heights_in = []
        for (title, draw), axes in zip(panels, grid, strict=True):
            axes.set_title(wrapped(title, TITLE_CHARACTERS))
            height_in = draw(axes)
            if beside := axes.get_legend():
                height_in = max(height_in, beside.get_window_extent().height / picture.dpi)
            heights_in.append(height_in)
        grid[0].get_gridspec().set_height_ratios(heights_in)
        picture.set_figheight(
            0.2 + 0.2 * line_count([headline]) + sum(heights_in) + TITLES_IN * len(panels)
        )
    return picture


class Look(NamedTuple):
    """The colour and the marker of a variant's lines."""

    colour: str
    """Colour of the lines. An empty text stands for the colour of text."""

    marker: Any
    is_faint: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Matplotlib's options for a line."""
        faint = {"linewidth": 0.9, "alpha": 0.55, "zorder": 1.5} if self.is_faint else {}
        return {"color": self.colour or ink(), "marker": self.marker} | faint


FAINT = Look("", "", is_faint=True)
"""The look of all variants except the `MAX_COLOURED` coloured variants."""

Looks = Mapping[str, Look]
Points = Sequence[tuple[float, float]]


def looks(variants: Sequence[str]) -> dict[str, Look]:
    """Return a look for each variant of a page. Different variants have different looks.

    A variant of gpubench has the same colour in different pictures, unless an earlier variant of
    the page has this colour. Libraries have the colour of text.
    """
    taken: dict[int, str] = {}
    for name in dict.fromkeys(name for name in variants if not is_library(name)):
        first = crc32(name.encode())  # does not depend on the other variants
        numbers = chain(((first + step) % SAFE for step in range(SAFE)), count(SAFE))
        taken[next(number for number in numbers if number not in taken)] = name
    libraries = sorted(set(filter(is_library, variants)))
    return {name: look(number) for number, name in taken.items()} | {
        name: Look("", marker) for name, marker in zip(libraries, cycle(LIBRARY_MARKERS))
    }


def is_library(variant: str) -> bool:
    """Return whether the name of a variant is the name of a vendor's library."""
    return "blas" in variant


def look(number: int) -> Look:
    """Return the look for this number. The number determines the colour and the marker."""
    turn = number // len(COLOURS)
    return Look(COLOURS[number % len(COLOURS)], MARKERS[(number + turn) % len(MARKERS)])


def ink() -> str:
    """Return the colour that the theme has for text and frames."""
    return str(mpl.rcParams["text.color"])


def ring(axes: Axes, rows: Sequence[Row], points: Points) -> None:
    """Draw rings around the points of rows whose rounds disagree."""
    if shaky := [point for row, point in zip(rows, points, strict=True) if row.unstable]:
        axes.plot(
            *zip(*shaky, strict=True),
            color=ink(),
            linestyle="",
            marker="o",
            markersize=12,
            markeredgewidth=1,
            fillstyle="none",
            zorder=3,  # over the lines
            label=label(DISAGREE),
        )


def legend(axes: Axes, lines: Sequence[Line2D]) -> None:
    """Draw the legend right of the axes, with lines from top to bottom, and the rings."""
    rings = [line for line in axes.lines if line.get_label() == label(DISAGREE)]
    ends = {line: np.asarray(line.get_ydata())[-1] for line in lines}
    axes.legend(
        handles=[*sorted(lines, key=ends.__getitem__, reverse=True), *rings[:1]],
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0,
        borderpad=0,
        handlelength=3,
        labelspacing=0.7,
    )


Bar = tuple[str, str, float, str]
"""A bar, as (text left of the bar, text right of the bar, length, colour)."""


def draw_bars(
    axes: Axes, bars: Sequence[Bar], title: str, rows: Iterable[Row], halves: Sequence[float | None]
) -> float:
    """Draw bars from top to bottom, and return the height of the axes.

    `title` is the title of the axis, which also explains `!` in the texts of unstable rows.
    `halves` has half of each bar's 95 % interval, divided by the length of the bar.
    """
    names = [label(name) for name, *_ in bars]
    figures = [label(figure) for _, figure, *_ in bars]
    *_, values, colours = zip(*bars, strict=True)
    axes.barh(range(len(bars)), values, 0.72, color=colours)
    for place, (value, half) in enumerate(zip(values, halves, strict=True)):
        if half:
            axes.errorbar(
                value, place, xerr=value * half, fmt="none", color=ink(), elinewidth=1.2, capsize=2
            )
    axes.set_ylim(len(bars) - 0.45, -0.55)
    beside = axes.secondary_yaxis("right")
    beside.spines["right"].set_visible(False)
    for side, texts in ((axes, names), (beside, figures)):
        side.set_yticks(range(len(bars)), texts)
        side.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    title += ", with 95 % intervals" if any(halves) else ""
    axes.set_xlabel(f"{title} (!: {DISAGREE})" if any(row.unstable for row in rows) else title)
    return max(1.0, LINE_IN * len(bars) * line_count([*names, *figures]))


def label(*lines: str) -> str:
    """Join lines to the text of a legend or an axis. Long lines are wrapped."""
    return "\n".join(wrapped(line, LABEL_CHARACTERS) for line in lines if line)


def wrapped(text: str, characters: int, lines: int = WRAPPED_LINES) -> str:
    """Break a text into lines of at most `characters` characters."""
    return fill(text, characters, max_lines=lines, placeholder=" …")


def line_count(labels: Iterable[str]) -> int:
    """Return the number of lines of the label with the most lines."""
    return max(text.count("\n") + 1 for text in labels)


def log_axis(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make an axis logarithmic. The ticks have plain numbers, such as 0.5 or 1,000.

    Call this function after drawing.
    """
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < NARROW else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.9g}"))
    axis.set_minor_formatter(NullFormatter())


def y_title(axes: Axes, text: str) -> None:
    """Write the title of the y axis above the axis. The title need not be rotated there."""
    axes.set_ylabel(text, rotation=0, horizontalalignment="left", verticalalignment="bottom")
    above = ScaledTranslation(0, 4 / 72, axes.figure.dpi_scale_trans)
    axes.yaxis.set_label_coords(0.0, 1.0, axes.transAxes + above)


def size_axis(axes: Axes, sizes: Sequence[str], names: Mapping[str, str]) -> dict[str, float]:
    """Make an evenly spaced x axis of sizes, and return the position of each size.

    The label of a rectangular size has a line for each extent. `names` has names of sizes, such as
    the names of a model's problems. If there is no room for the text of a size, the size has no
    tick. Names that do not fit are replaced by numbers, which the title explains.
    """
    texts = [label(names.get(size, "")) or size.replace("x", "×\n") for size in sizes]
    characters = max(len(line) for text in texts for line in text.split("\n"))
    title = "problem" if names else "matrix size"
    if names and characters * len(texts) > TICK_CHARACTERS:
        listed = ", ".join(f"{place}\u00a0{name}" for place, name in enumerate(texts, 1))
        title = wrapped(f"{title}: {listed}", TITLE_CHARACTERS, KEY_LINES)
        texts, characters = [str(place) for place, _ in enumerate(texts, 1)], 2
    step = math.ceil(len(texts) * (characters + 1) / TICK_CHARACTERS)
    axes.set_xticks(range(0, len(texts), step), texts[::step])
    axes.set_xlabel(title)
    return {size: float(place) for place, size in enumerate(sizes)}


def default_theme(path: Path) -> Theme:
    """Return the theme for a file. An SVG may be shown on light and on dark pages."""
    return Theme.BOTH if path.suffix.lower() == ".svg" else Theme.LIGHT


def claim(path: Path, *, force: bool) -> Output:
    """Return the file for a picture. Raises UsageError if the picture cannot be written there."""
    require_ending("--output", path, *FORMATS)
    return Output(path, overwrite=force)


def save(picture: Picture, output: Output, description: str = "") -> None:
    """Write the picture in the format that the suffix of the path states.

    Raises UsageError if writing fails. An older file then stays unchanged.

    An SVG contains `description`, which states what the picture was made from.
    """
    kind = output.path.suffix.lower().removeprefix(".")
    if kind == "svg":
        content = svg(picture, description).encode()
    else:
        undated = {"Software": None} if kind == "png" else {"CreationDate": None}
        content = picture.rendered(kind, dpi=DPI, metadata=undated)
    output.write(content)


def provenance(kind: str, files: Sequence[Path]) -> str:
    """Return a text on the kind and the sources of a picture.

    An example is `tiles of sweep.csv (sha256 0123456789abcdef)`.
    """
    hashes = ((path, sha256(path.read_bytes()).hexdigest()) for path in files)
    return f"{kind} of {', '.join(f'{path.name} (sha256 {text[:16]})' for path, text in hashes)}"


def svg(picture: Picture, description: str = "") -> str:
    """Return the picture as SVG. The SVG has no date, so equal pictures have equal texts."""
    metadata = {"Date": None, "Description": clean(description) or None, "Creator": None}
    text = picture.rendered("svg", metadata=metadata).decode()
    text = text.replace("'DejaVu Sans'", FONTS)
    # Round coordinates to a thousandth of a point; text between tags is kept.
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d{3})\d+", r"\1", tag[0]), text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
