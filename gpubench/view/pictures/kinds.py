"""The kinds of pictures: which kinds rows suffice for, and how each draws them.

The roofline is that of Williams, Waterman and Patterson, 2009. Intensity counts the bytes that must
move (each operand once). A kernel that loads more bytes is below the roof. No kernel whose operands
come from memory can be above it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.results.row import Row
from gpubench.text import unknown
from gpubench.view.numbers import number
from gpubench.view.pictures import Kind, Theme, style
from gpubench.view.pictures.series import (
    Panel,
    Series,
    Source,
    edge_of,
    extent,
    looks_of,
    panels,
    single_source,
)
from gpubench.view.pictures.tiles import tile_panels
from gpubench.view.row_tables import DISAGREE, NAIVE_LOOP, is_bandwidth_bound, is_baseline

MIN_CURVE = 3
"""Minimum number of points of a line."""

CURVE_IN, LINE_IN = 3.8, 0.23
"""Height of axes, and of a line of text beside bars."""

SHADES = (1.0, 0.65, 0.4, 0.25)
"""Opacity of the bars of each source."""

EXACT = 100
"""Speed-ups below this value are shown with a decimal."""


class _Drawing(NamedTuple):
    """How a kind draws rows."""

    headline: str
    panels: Callable[[Sequence[Source], style.Looks], style.Panels]
    """Returns no panel if the rows do not suffice."""

    missing: str
    """What the rows lack then."""


def draw(
    group: Sequence[Source],
    kind: str = Kind.AUTO,
    *,
    theme: str = Theme.LIGHT,
    looks: style.Looks | None = None,
) -> style.Picture:
    """Draw the rows of sources; `looks` are those of a page with several pictures.

    Raises UsageError for an unknown kind or theme, or too few rows.
    """
    if theme not in list(Theme):
        raise UsageError(f"--theme: {unknown('theme', theme, list(Theme))}")
    kind = resolve(group, kind)
    drawing = KINDS[kind]
    drawn = drawing.panels(group, looks or looks_of(group))
    if not drawn:
        raise UsageError(f"--kind {kind}: {drawing.missing}")
    library = group[0].rows[0].library or "the BLAS"
    headline = drawing.headline.format(library=library)
    if alone := single_source(group, by_size=kind in {Kind.TILES, Kind.BLAS}):
        headline += f"\nNot drawn, as only one file has it: {'; '.join(alone)}"
    return style.compose(headline, drawn, Theme(theme))


def resolve(group: Sequence[Source], kind: str) -> Kind:
    """Return the kind; for `auto`, the kind that shows what the rows vary in.

    Raises UsageError for an unknown kind, and if there are no rows.
    """
    if kind != Kind.AUTO and kind not in KINDS:
        raise UsageError(f"--kind: {unknown('kind', kind, list(Kind))}")
    if not group:
        raise UsageError("nothing to draw: no row has a time")
    if kind != Kind.AUTO:
        return Kind(kind)
    rows = _rows(group)
    if len({row.backend for row in rows}) > 1:
        return Kind.SPEEDUP if any(row.variant == NAIVE_LOOP for row in rows) else Kind.SIZES
    sizes = len({(row.m, row.n, row.k) for row in rows})
    edges = len({edge_of(row) for row in rows} - {None})
    if max(sizes, edges) >= MIN_CURVE or (edges > 1 and sizes == 1):
        return Kind.SIZES if sizes >= edges else Kind.TILES
    if any(row.percent_of_blas for row in rows):
        return Kind.BLAS
    return Kind.TILES if any(row.tile for row in rows) else Kind.SIZES


def fitting(group: Sequence[Source]) -> list[Kind]:
    """Return every kind that the rows suffice for and that would show more than one figure."""
    rows = _rows(group)
    fits = {
        Kind.TILES: len({row.tile for row in rows if row.tile}) >= MIN_CURVE,
        Kind.SIZES: len({(row.m, row.n, row.k) for row in rows}) >= MIN_CURVE,
        Kind.BLAS: any(row.percent_of_blas and not is_baseline(row) for row in rows),
        Kind.ROOFLINE: any(row.percent_of_peak for row in rows),
        Kind.SPEEDUP: len({row.backend for row in rows}) > 1
        and any(row.variant == NAIVE_LOOP for row in rows),
    }
    return [kind for kind in KINDS if fits[kind]]


def _rows(group: Sequence[Source]) -> list[Row]:
    return [row for source in group for row in source.rows]


# ---- speed against size: each variant at its best tile


def _sizes(group: Sequence[Source], looks: style.Looks) -> style.Panels:
    """A panel for each dtype, cache state and scope, with the peak and the BLAS."""
    return [
        (panel.title, partial(_rates, panel, looks))
        for panel in panels(group, by_size=False)
        if any(row.gflops for row in panel.rows)
    ]


def _rates(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    """Draw bytes/s below a copy's if memory bandwidth limits, else operations/s below the peak."""
    if is_bandwidth_bound(panel.rows[0]):
        rate, unit, limited_by = "gbytes_per_s", "GB/s", "copy"
    else:
        rate, limited_by = "gflops", "peak"
        unit = "Gop/s" if panel.rows[0].dtype.startswith("int") else "GFLOP/s"
    places = _size_axis(axes, panel.rows)
    lines = []
    for line in panel.series:
        rows = line.best_by_size
        points = [(places[row.size], getattr(row, rate) or 0.0) for row in rows]
        figure = f"{number(points[-1][1], 0)} {unit}"
        lines.append(_line(axes, line, panel.look(line.variant, looks), rows, points, figure))
    for source, peak in panel.peaks_gflops.items():
        if limit := source.copy_gbytes_per_s if limited_by == "copy" else peak:
            text = style.label(source.named(limited_by), f"{number(limit, 0)} {unit}")
            dots = (0, (1, 2))
            lines.append(
                axes.axhline(limit, color=style.ink(), linewidth=1, linestyle=dots, label=text)
            )
    style.log_axis(axes, "y")
    style.y_title(axes, unit)
    style.legend(axes, lines)
    return CURVE_IN


def _size_axis(axes: Axes, rows: Iterable[Row]) -> dict[str, float]:
    """Make an x axis of sizes, with the names of problems of a list. Return each size's place."""
    extents: dict[str, float] = {}
    names: dict[str, str] = {}
    for row in rows:
        extents[row.size] = extent(row)
        if row.problem:
            names[row.size] = row.problem
    return style.size_axis(axes, extents, "problem" if names else "matrix size", names)


def _line(
    axes: Axes,
    line: Series,
    look: style.Look,
    rows: Sequence[Row],
    points: style.Points,
    figure: str,
) -> Line2D:
    """Draw a variant's line, a point per row."""
    name = [f"{line.name}, {figure}"] if look.is_faint else [line.name, figure]
    (drawn,) = axes.plot(
        *zip(*points, strict=True),
        **look.options,
        linestyle=line.source.dashes,
        label=style.label(*name),
    )
    style.ring(axes, rows, points)
    return drawn


# ---- the roofline


def _roofline(group: Sequence[Source], looks: style.Looks) -> style.Panels:
    """A panel for each dtype, cache state and scope; a marker per size and variant."""
    rated = [panel for panel in panels(group, by_size=False) if any(panel.peaks_gflops.values())]
    return [(panel.title, partial(_roofs, panel, looks)) for panel in rated]


def _roofs(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    lines = []
    for line in panel.series:
        rows = line.best_by_size
        points = [(row.arithmetic_intensity or 1.0, row.gflops or 0.0) for row in rows]
        figure = f"{number(rows[-1].percent_of_peak, 1)} % of peak"
        lines.append(_line(axes, line, panel.look(line.variant, looks), rows, points, figure))
    peaks = {source: peak for source, peak in panel.peaks_gflops.items() if peak}
    edges = [row.arithmetic_intensity or 1.0 for row in panel.rows]
    slopes = {source: source.copy_gbytes_per_s or source.datasheet_gbytes_per_s for source in peaks}
    edges += [peaks[source] / slope for source, slope in slopes.items() if slope]
    low, high = min(edges) / 4, max(edges) * 1.3
    for source, peak in peaks.items():
        slope = slopes[source]
        measured = "copy" if source.copy_gbytes_per_s else "datasheet:"
        lines += axes.plot(
            [low, peak / slope, high] if slope else [low, high],
            [low * slope, peak, peak] if slope else [peak, peak],
            color=style.ink(),
            linewidth=1.4,
            linestyle=source.dashes,
            label=style.label(
                source.named("roof"),
                f"peak {number(peak, 0)} GFLOP/s",
                f"{measured} {number(slope, 0)} GB/s" if slope else "slope unknown: --bandwidth",
            ),
        )
    axes.set(
        xlim=(low, high),
        xlabel="arithmetic intensity, FLOP per byte that must move",
    )
    style.y_title(axes, "GFLOP/s")
    style.log_axis(axes, "x")
    style.log_axis(axes, "y")
    style.legend(axes, lines)
    return CURVE_IN


# ---- speed-up over the CPU


def _speedup(group: Sequence[Source], looks: style.Looks) -> style.Panels:
    """A panel for each operation, dtype and scope.

    Speed-ups over the naive loop alone overstate a GPU. So the panel also has the CPU's BLAS, on
    one core and on all cores.
    """
    groups = grouped(
        (line for panel in panels(group, by_size=False) for line in panel.series),
        lambda line: (
            *(line.rows[0].op, line.rows[0].dtype, line.rows[0].scope),
            line.rows[0].special,
        ),
    )
    compared = []
    for (op, dtype, scope, special), lines in groups.items():
        if any(line.variant == NAIVE_LOOP for line in lines):
            devices = " and ".join(dict.fromkeys(line.rows[0].device or "" for line in lines))
            end_to_end = "" if scope == "kernel" else f", {scope}"
            title = f"{op} {dtype}: {devices}{end_to_end}{special}"
            compared.append(Panel(title=title, series=tuple(lines)))
    return [(panel.title, partial(_times, panel, looks)) for panel in compared]


def _times(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    baselines = [row for row in panel.rows if row.variant == NAIVE_LOOP]
    baseline_us = {row.size: row.median_us or 0.0 for row in baselines}
    places = _size_axis(axes, [row for row in panel.rows if row.size in baseline_us])
    lines = []
    for line in panel.series:
        if rows := [row for row in line.best_by_size if row.size in baseline_us]:
            points = [
                (places[row.size], baseline_us[row.size] / (row.median_us or 1.0)) for row in rows
            ]
            times = points[-1][1]
            figure = f"{number(times, 1 if times < EXACT else 0)} times"
            lines.append(_line(axes, line, panel.look(line.variant, looks), rows, points, figure))
    style.log_axis(axes, "y")
    style.y_title(axes, "speed-up")
    style.legend(axes, lines)
    return CURVE_IN


# ---- percent of the BLAS


def _blas(group: Sequence[Source], _looks: style.Looks) -> style.Panels:
    """A panel for each dtype, cache state and scope, at the largest size of each."""
    groups = grouped(_rows(group), lambda row: (row.op, row.compute_mode))
    largest = {name: max(map(extent, rows)) for name, rows in groups.items()}

    def is_largest(row: Row) -> bool:
        return extent(row) == largest[row.op, row.compute_mode]

    group = [replace(source, rows=tuple(filter(is_largest, source.rows))) for source in group]
    rated = [panel for panel in panels(group, by_size=True) if any(map(_percent, panel.series))]
    return [(panel.title, partial(_bars, panel)) for panel in rated]


def _bars(panel: Panel, axes: Axes) -> float:
    """Draw a bar for each variant and source, the slowest variant on top."""
    rated = [line for line in panel.series if line.best.percent_of_blas is not None]
    variants = sorted(
        grouped(rated, lambda line: line.variant).values(),
        key=lambda lines: max(map(_percent, lines)),
    )
    labels = list(dict.fromkeys(line.source.label for line in panel.series))
    thick = 0.8 / len(labels)
    texts = {}
    for place, lines in enumerate(variants):
        for line in lines:
            index = labels.index(line.source.label)
            y = place + (index - (len(labels) - 1) / 2) * thick
            axes.barh(
                y,
                _percent(line),
                thick * 0.9,
                color=style.ink() if style.is_library(line.variant) else style.COLOURS[0],
                alpha=SHADES[index % len(SHADES)],
            )
            tile = f"tile {line.best.tile}" if line.best.tile else ""
            percent = f"{_percent(line):,.1f} %{' !' * line.best.unstable}"
            about = filter(None, (percent, tile, line.source.label))
            texts[y] = style.label(", ".join(about))
    axes.axvline(100, color=style.ink(), linewidth=1, linestyle=(0, (4, 2)))
    names = [style.label(lines[0].variant) for lines in variants]
    _label_bars(axes, names, texts)
    explained = f" (!: {DISAGREE})" if any(line.best.unstable for line in rated) else ""
    axes.set_xlabel(f"percent{explained}")
    return LINE_IN * len(variants) * len(labels) * style.line_count([*names, *texts.values()])


def _percent(line: Series) -> float:
    return line.best.percent_of_blas or 0.0


def _label_bars(axes: Axes, names: Sequence[str], texts: Mapping[float, str]) -> None:
    """Name the groups of bars on the left, from the top, and each bar on the right."""
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.set_yticks(range(len(names)), names)
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(list(texts), list(texts.values()))
    beside.spines["right"].set_visible(False)
    for side in (axes, beside):
        side.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


KINDS = {
    Kind.TILES: _Drawing(
        "Time against tile size",
        tile_panels,
        "no row has a tile; --kind blas compares without tiles",
    ),
    Kind.SIZES: _Drawing("Speed against size, best tile", _sizes, "no row has gflops"),
    Kind.BLAS: _Drawing(
        "Speed in percent of {library}, best tile",
        _blas,
        "no row has percent_of_blas; sweep 'cublas' with the kernels, or use "
        "'gpubench compare-cublas'",
    ),
    Kind.ROOFLINE: _Drawing(
        "Roofline, best tile of each size",
        _roofline,
        "no row has percent_of_peak, so the roof is unknown",
    ),
    Kind.SPEEDUP: _Drawing(
        "Times faster than the naive loop on one CPU core",
        _speedup,
        f"no row of '{NAIVE_LOOP}', which speed-ups are over; add the CSV of "
        f"'gpubench sweep --device cpu --variants {NAIVE_LOOP},cpu_blas,cpu_blas_parallel'",
    ),
}
"""The kinds that draw rows."""
