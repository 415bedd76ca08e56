"""Chooses the kind of a picture for rows of results, and draws the picture.

The roofline follows Williams, Waterman and Patterson, 2009. The arithmetic intensity counts only
the bytes that must move, so no kernel whose operands come from memory can be above the roofline.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import hypot
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.results.row import Row
from gpubench.text import unknown
from gpubench.view.numbers import number
from gpubench.view.pictures import Kind, Theme, style
from gpubench.view.pictures.bits import bits_panels, draw_bits
from gpubench.view.pictures.series import Panel, Series, Source, edge_of, extent, panels, titles
from gpubench.view.pictures.tiles import draw_tiles, looks_of, tile_panels
from gpubench.view.row_tables import baseline_name, is_bandwidth_bound, is_baseline

MIN_CURVE = 3  # if there are at least this number of sizes or tiles, `auto` draws lines

MAX_PANELS = 24
"""Maximum number of panels of a picture. Drawing more panels would take more than a minute."""

MAX_LINES = 200  # maximum number of lines of a picture

FEW_PANELS = 4
"""Maximum number of panels if the user chose no rows. Only the panels with the largest sizes are
drawn."""

CURVE_IN = 3.8  # height in inches of the axes of a panel with curves


class _Drawing(NamedTuple):
    """The functions that draw rows in one kind of picture, and the texts of this kind."""

    headline: str
    panels: Callable[[Sequence[Source]], list[Panel]]
    """Returns the panels of the rows, or an empty list if the rows do not suffice for the kind."""

    draw: Callable[[Panel, style.Looks, Axes], float]
    """Draws a panel into axes, and returns their height in inches."""

    missing: str
    """Message for the user if there is no panel. The message states what the rows lack."""


def draw(
    group: Sequence[Source],
    kind: str = Kind.AUTO,
    *,
    theme: Theme = Theme.LIGHT,
    looks: style.Looks | None = None,
    max_panels: int | None = None,
) -> style.Picture:
    """Return a picture of the rows of the sources.

    `looks` has the looks of variants, if several pictures of a page share them.

    If there are more than `max_panels` panels, only the panels of the largest sizes are drawn, and
    the headline states both numbers.

    Raises UsageError for an unknown kind, for too few rows, and for too many lines.
    """
    kind = resolve(group, kind)
    drawing = KINDS[kind]
    drawn = drawing.panels(group)
    if not drawn:
        raise UsageError(f"--kind {kind}: {drawing.missing}")
    every = len(drawn)
    if max_panels and every > max_panels:
        largest = sorted(drawn, key=lambda panel: -max(map(extent, panel.rows)))[:max_panels]
        drawn = [panel for panel in drawn if panel in largest]
    lines = sum(len(panel.series) for panel in drawn)
    if len(drawn) > MAX_PANELS or lines > MAX_LINES:
        raise UsageError(
            f"the picture would have {len(drawn):,} panels and {lines:,} lines; the maximum is "
            f"{MAX_PANELS} panels and {MAX_LINES} lines: choose rows with --only or --exclude"
        )
    looks = looks or looks_of(group)
    headline = drawing.headline.format(baseline=baseline_name(group[0].rows[0]))
    if len(drawn) < every:
        headline += f": {len(drawn)} of {every} panels; --only chooses other panels"
    into = [(panel.title, partial(drawing.draw, panel, looks)) for panel in drawn]
    return style.compose(headline, into, theme)


def resolve(group: Sequence[Source], kind: str) -> Kind:
    """Return `kind`. For `auto`, return a kind that suits the columns in which the rows differ.

    Raises UsageError for an unknown kind, and if there are no rows.
    """
    if kind != Kind.AUTO and kind not in KINDS:
        raise UsageError(f"--kind: {unknown('kind', kind, list(Kind))}")
    if not group:
        raise UsageError("nothing to draw: no row has a time")
    if kind != Kind.AUTO:
        return Kind(kind)
    rows = _rows(group)
    sizes = len({row.numbers for row in rows})
    edges = len({edge_of(row) for row in rows} - {None})
    if max(sizes, edges) >= MIN_CURVE or (edges > 1 and sizes == 1):
        return Kind.SIZES if sizes >= edges else Kind.TILES
    if any(row.percent_of_blas for row in rows):
        return Kind.BLAS
    return Kind.TILES if any(row.tile for row in rows) else Kind.SIZES


def fitting(group: Sequence[Source]) -> list[Kind]:
    """Return each kind of picture that can be drawn from the rows and shows more than one value."""
    rows = _rows(group)
    fits = {
        Kind.TILES: len({row.tile for row in rows if row.tile}) >= MIN_CURVE,
        Kind.SIZES: len({row.numbers for row in rows}) >= MIN_CURVE,
        Kind.BLAS: any(row.percent_of_blas and not is_baseline(row) for row in rows),
        Kind.ROOFLINE: any(row.percent_of_peak for row in rows),
        Kind.BITS: bool(bits_panels(group)),
    }
    return [kind for kind in KINDS if fits[kind]]


def _rows(group: Sequence[Source]) -> list[Row]:
    return [row for source in group for row in source.rows]


def _having(column: str, group: Sequence[Source]) -> list[Panel]:
    """Return a panel for each dtype, cache state and scope with rows that have the column."""
    by_conditions = panels(group, titles(group, by_size=False))
    return [panel for panel in by_conditions if any(getattr(row, column) for row in panel.rows)]


# ---- speed against size: each variant at its best tile


def _sizes(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    """Draw speed against size: bytes/s if memory limits the speed, and operations/s otherwise.

    The copy rate or the peak is drawn as a limit.
    """
    if is_bandwidth_bound(panel.rows[0]):
        rate, unit, limited_by = "gbytes_per_s", "GB/s", "copy"
    else:
        rate, limited_by = "gflops", "peak"
        unit = "Gop/s" if panel.rows[0].dtype.startswith("int") else "GFLOP/s"
    names = {row.size: row.problem for row in panel.rows if row.problem}
    sizes = dict.fromkeys(row.size for row in sorted(panel.rows, key=extent))
    places = style.size_axis(axes, list(sizes), names)
    lines = _lines(
        panel,
        looks,
        axes,
        lambda row: (places[row.size], getattr(row, rate) or 0.0),
        lambda row: f"{number(getattr(row, rate), 0)} {unit}",
        order=lambda row: places[row.size],
    )
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


def _lines(
    panel: Panel,
    looks: style.Looks,
    axes: Axes,
    point: Callable[[Row], tuple[float, float]],
    figure: Callable[[Row], str],
    order: Callable[[Row], float] = extent,
) -> list[Line2D]:
    """Draw a line for each variant. A line has a point for each size, in this order.

    The label of a line contains the value at the largest size.
    """
    lines = []
    for line in panel.series:
        rows, look = sorted(line.best_by_size, key=order), panel.look(line.variant, looks)
        points, text = list(map(point, rows)), figure(rows[-1])
        name = style.label(*([f"{line.name}, {text}"] if look.is_faint else [line.name, text]))
        options = look.options | {"linestyle": line.source.dashes, "label": name}
        lines += axes.plot(*zip(*points, strict=True), **options)
        style.ring(axes, rows, points)
    return lines


# ---- the roofline


def _roofline(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    """Draw a roofline: a point for each size of each variant, and the roof of each source."""
    lines = _lines(
        panel,
        looks,
        axes,
        lambda row: (row.arithmetic_intensity or 1.0, row.gflops or 0.0),
        lambda row: f"{number(row.percent_of_peak, 1)} % of peak",
    )
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
    axes.set(xlim=(low, high), xlabel="arithmetic intensity, FLOP per byte that must move")
    style.y_title(axes, "GFLOP/s")
    style.log_axis(axes, "x")
    style.log_axis(axes, "y")
    style.legend(axes, lines)
    return CURVE_IN


# ---- percent of the BLAS


def _rated(group: Sequence[Source]) -> list[Panel]:
    """Return a panel for each dtype, cache state and scope, at the precision's largest size."""
    rows = grouped(_rows(group), lambda row: (row.op, row.compute_mode))
    largest = {name: max(map(extent, of_name)) for name, of_name in rows.items()}
    group = [
        replace(
            source, rows=tuple(r for r in source.rows if extent(r) == largest[r.op, r.compute_mode])
        )
        for source in group
    ]
    every = panels(group, titles(group, by_size=True))
    return [panel for panel in every if any(map(_percent, panel.series))]


def _blas(panel: Panel, _looks: style.Looks, axes: Axes) -> float:
    """Draw a bar for each variant of each source, with the slowest variant on top."""
    lines = sorted(filter(_percent, panel.series), key=_percent)
    axes.axvline(100, color=style.ink(), linewidth=1, linestyle=(0, (4, 2)))
    bars = []
    for line in lines:
        tile = f", tile {line.best.tile}" if line.best.tile else ""
        figure = f"{_percent(line):,.1f} %{' !' if line.best.unstable else ''}{tile}"
        colour = style.ink() if style.is_library(line.variant) else style.COLOURS[0]
        bars.append((line.name, figure, _percent(line), colour))
    best = [line.best for line in lines]
    rows = {
        source: [row for line in of_source for row in line.rows]
        for source, of_source in grouped(panel.series, lambda line: line.source).items()
    }
    halves = [_half(line.best, rows[line.source]) for line in lines]
    return style.draw_bars(axes, bars, "percent", best, halves)


def _half(row: Row, rows: Sequence[Row]) -> float | None:
    """Return the half-width of a percentage's interval, relative to the percentage.

    The half-width follows from the intervals of the row and of the BLAS.
    """
    alike = [each for each in rows if is_baseline(each) and each.numbers == row.numbers]
    library = min(alike, key=lambda each: each.median_us or 0.0, default=row)
    if library is row or row.half_interval is None or library.half_interval is None:
        return None
    return hypot(row.half_interval, library.half_interval)


def _percent(line: Series) -> float:
    return line.best.percent_of_blas or 0.0


KINDS = {
    Kind.TILES: _Drawing(
        "Time against tile size",
        tile_panels,
        draw_tiles,
        "no row has a tile; --kind blas compares without tiles",
    ),
    Kind.SIZES: _Drawing(
        "Speed against size, best tile", partial(_having, "gflops"), _sizes, "no row has gflops"
    ),
    Kind.BLAS: _Drawing(
        "Speed in percent of {baseline}, best tile",
        _rated,
        _blas,
        "no row has percent_of_blas; sweep 'cublas' with the kernels, or use "
        "'gpubench compare-cublas'",
    ),
    Kind.ROOFLINE: _Drawing(
        "Roofline, best tile of each size",
        partial(_having, "percent_of_peak"),
        _roofline,
        "no row has percent_of_peak, so the roof is unknown",
    ),
    Kind.BITS: _Drawing(
        "Speed over exact bits, best tile of each precision",
        bits_panels,
        draw_bits,
        "no size has rows with error_rms_bits in two precisions",
    ),
}
"""Maps each kind to the functions that draw it. `auto` is missing, because `resolve` replaces
`auto` by another kind."""
