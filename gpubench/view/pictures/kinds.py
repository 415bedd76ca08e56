"""The kinds of pictures: which kinds rows suffice for, and how each draws them.

The roofline is that of Williams, Waterman and Patterson, 2009. Intensity counts the bytes that must
move (each operand once). A kernel that loads more bytes is below the roof. No kernel whose operands
come from memory can be above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gpubench.errors import UsageError
from gpubench.model import DTYPES
from gpubench.results.row import Row
from gpubench.text import unknown
from gpubench.view.pictures import Kind, Theme, style
from gpubench.view.pictures.series import (
    Panel,
    Series,
    Source,
    edge_of,
    extent,
    grouped,
    is_baseline,
    libraries,
    panels,
)
from gpubench.view.tables import (
    DISAGREE,
    NAIVE_LOOP,
    best_of,
    is_bandwidth_bound,
    milliseconds,
    number,
)

MIN_CURVE = 3
"""Minimum number of points of a line, and of tiles for an axis that names only powers of two."""

CURVE_IN, LINE_IN = 3.8, 0.23
"""Height of axes, and of a line of text beside bars."""

TILES_IN, TILE_IN = 3.5, 0.21
"""Height of axes of tile sizes, and of a line of a list of block tiles."""

MAX_BLOCK_TILES = 24
"""Maximum number of block tiles of a panel, the fastest ones."""

SHADES = (1.0, 0.65, 0.4, 0.25)
"""Opacity of the bars of each source."""

EXACT = 100
"""Speed-ups below this value are shown with a decimal."""

RING = style.label(DISAGREE)
"""The meaning of rings in a legend."""

Looks = Mapping[str, style.Look]
Points = Sequence[tuple[float, float]]
Drawing = tuple[str, style.Panels]
"""The headline and the panels of a picture."""


def draw(
    group: Sequence[Source], kind: str = Kind.AUTO, *, theme: str = Theme.LIGHT, strip: bool = False
) -> style.Picture:
    """Draw the rows of sources. Raises UsageError for an unknown kind or theme, or too few rows."""
    if theme not in list(Theme):
        raise UsageError(f"--theme: {unknown('theme', theme, list(Theme))}")
    headline, drawn = KINDS[resolve(group, kind)](group)
    return style.compose(headline, drawn, Theme(theme), strip=strip)


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
    if max(sizes, edges) >= MIN_CURVE:
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
        Kind.PEAK: len({row.state for row in rows}) > 1 and bool(_groups_by_size(rows)),
        Kind.PRECISIONS: _has_precisions(rows),
        Kind.ROOFLINE: any(row.percent_of_peak for row in rows),
        Kind.SPEEDUP: len({row.backend for row in rows}) > 1
        and any(row.variant == NAIVE_LOOP for row in rows),
    }
    return [kind for kind in KINDS if fits[kind]]


def _rows(group: Sequence[Source]) -> list[Row]:
    return [row for source in group for row in source.rows]


# ---- time against tile size: a line per variant, a large marker for its best tile


def _tiles(group: Sequence[Source]) -> Drawing:
    """Per problem, a panel of tiles given by an edge, and a panel of block tiles, if any."""
    problems = panels(group, by_size=True)
    edges = [panel for panel in problems if any(map(edge_of, panel.rows))]
    blocks = [panel for panel in problems if any(map(_is_block, panel.rows))]
    if not edges and not blocks:
        raise UsageError("--kind tiles: no row has a tile; --kind blas compares without tiles")
    looks = style.looks(
        [line.variant for test in tests for line in _having(panel, test)]
        for panel in problems
        for tests in ((edge_of, _has_no_tile), (_is_block,))
    )
    return "Time against tile size", [
        *((panel.title, partial(_edges, panel, looks)) for panel in edges),
        *((f"{panel.title}: block tiles", partial(_blocks, panel, looks)) for panel in blocks),
    ]


def _edges(panel: Panel, looks: Looks, axes: Axes) -> float:
    lines = [_curve(axes, line, looks[line.variant]) for line in _having(panel, edge_of)]
    flat = _having(panel, _has_no_tile)
    is_alone = len({line.variant for line in flat}) == 1
    for line in flat:
        drawn = axes.axhline(
            _ms(line.best),
            color=style.ink() if is_alone else looks[line.variant].colour,
            linewidth=1,
            linestyle=line.source.dashes,
            label=style.label(line.name, f"{milliseconds(line.best.median_us)} ms"),
        )
        lines.append(drawn)
    tiles = sorted({edge for row in panel.rows if (edge := edge_of(row))})
    powers = [tile for tile in tiles if tile & (tile - 1) == 0]
    named = powers if len(powers) >= MIN_CURVE else tiles
    style.size_axis(axes, {str(tile): tile for tile in named}, f"tile size{_key(panel)}")
    style.log_axis(axes, "y")
    axes.set_ylabel("time per launch, ms")
    _legend(axes, lines)
    return TILES_IN


def _curve(axes: Axes, line: Series, look: style.Look) -> Line2D:
    """Draw the line, and return its entry in the legend."""
    rows = sorted(filter(edge_of, line.rows), key=lambda row: int(row.tile))
    tiles = [int(row.tile) for row in rows]
    line_style: dict[str, Any] = {"color": look.colour, "linestyle": line.source.dashes}
    axes.plot(tiles, [_ms(row) for row in rows], **line_style)
    style.interval(axes, tiles, rows, look.colour)
    best = line.best
    alike = grouped(rows, lambda row: (row is best, bool(row.local_bytes)))
    for (is_best, _), group in alike.items():
        points = [int(row.tile) for row in group], [_ms(row) for row in group]
        axes.plot(*points, **_marker(group[0], look, largest=is_best))
    _ring(axes, rows, [(int(row.tile), _ms(row)) for row in rows])
    text = style.label(line.name, f"best {best.tile}: {milliseconds(best.median_us)} ms")
    return Line2D([tiles[-1]], [_ms(rows[-1])], **line_style, marker=look.marker, label=text)


def _blocks(panel: Panel, looks: Looks, axes: Axes) -> float:
    """Draw block tiles, which have no natural order, as a list with the fastest on top."""
    pairs = [(line, row) for line in panel.series for row in line.rows if _is_block(row)]
    pairs = sorted(pairs, key=lambda pair: _ms(pair[1]))[:MAX_BLOCK_TILES]
    for place, (line, row) in enumerate(pairs):
        axes.plot(_ms(row), place, **_marker(row, looks[line.variant], largest=row is line.best))
    axes.yaxis.tick_right()
    texts = [style.label(f"{line.name}  {row.tile}") for line, row in pairs]
    style.name_rows(axes, texts)
    for text, (line, _) in zip(axes.get_yticklabels(), pairs, strict=True):
        text.set_color(looks[line.variant].colour)
    rows = [row for _, row in pairs]
    _ring(axes, rows, [(_ms(row), place) for place, row in enumerate(rows)])
    ring = f"; ring: {DISAGREE}" if any(row.unstable for row in rows) else ""
    style.log_axis(axes, "x")
    axes.set_xlabel(f"time per launch, ms{_key(panel)}{ring}")
    return max(1.0, TILE_IN * len(pairs) * style.line_count(texts))


def _having(panel: Panel, test: Callable[[Row], object]) -> list[Series]:
    """Return the lines with a row that passes the test."""
    return [line for line in panel.series if any(map(test, line.rows))]


def _has_no_tile(row: Row) -> bool:
    return not row.tile


def _is_block(row: Row) -> bool:
    return bool(row.tile) and edge_of(row) is None


def _key(panel: Panel) -> str:
    """Explain the markers, after the title of an axis."""
    spills = any(row.tile and row.local_bytes for row in panel.rows)
    return " (large: best tile; cross: uses local memory)" if spills else " (large: best tile)"


def _marker(row: Row, look: style.Look, *, largest: bool) -> dict[str, Any]:
    """Return matplotlib's options for a tile: a cross if the kernel uses local memory."""
    size = 9.0 if largest else 5.0 if row.local_bytes else 4.0
    shape = {"marker": "x", "markeredgewidth": 1.3} if row.local_bytes else {"marker": look.marker}
    return {"linestyle": "", "color": look.colour, "markersize": size} | shape


def _ms(row: Row) -> float:
    return (row.median_us or 0.0) / 1e3


# ---- speed against size: each variant at its best tile


def _sizes(group: Sequence[Source]) -> Drawing:
    """A panel for each dtype, cache state and scope, with the peak and the BLAS."""
    return "Speed against size, best tile", _with_looks(panels(group, by_size=False), _rates)


def _with_looks(
    group: Sequence[Panel], draw_panel: Callable[[Panel, Looks, Axes], float]
) -> list[tuple[str, Callable[[Axes], float]]]:
    """Give each variant a look. A single BLAS gets none: it is drawn in the colour of text."""
    lines = [line for panel in group for line in panel.series]
    baselines = {line.variant for line in lines if is_baseline(line.best)}
    without = baselines if len(baselines) == 1 else set()
    looks = style.looks(
        [line.variant for line in panel.series if line.variant not in without] for panel in group
    )
    return [(panel.title, partial(draw_panel, panel, looks)) for panel in group]


def _rates(panel: Panel, looks: Looks, axes: Axes) -> float:
    """Draw bytes/s below a copy's if memory bandwidth limits, else operations/s below the peak."""
    if is_bandwidth_bound(panel.rows[0]):
        rate, unit, limited_by = "gbytes_per_s", "GB/s", "copy"
    else:
        rate, limited_by = "gflops", "peak"
        unit = "Gop/s" if panel.rows[0].dtype.startswith("int") else "GFLOP/s"
    places = style.size_axis(axes, {row.size: extent(row) for row in panel.rows}, "matrix size")
    lines = []
    for line in panel.series:
        rows = line.best_by_size
        points = [(places[row.size], getattr(row, rate) or 0.0) for row in rows]
        figure = f"{number(points[-1][1], 0)} {unit}"
        lines.append(_line(axes, line, looks, rows, points, figure))
    for source, peak in panel.peaks_gflops.items():
        if limit := source.copy_gbytes_per_s if limited_by == "copy" else peak:
            text = style.label(source.named(limited_by), f"{number(limit, 0)} {unit}")
            dots = (0, (1, 2))
            lines.append(
                axes.axhline(limit, color=style.ink(), linewidth=1, linestyle=dots, label=text)
            )
    style.log_axis(axes, "y")
    axes.set_ylabel(unit)
    _legend(axes, lines)
    return CURVE_IN


def _line(
    axes: Axes, line: Series, looks: Looks, rows: Sequence[Row], points: Points, figure: str
) -> Line2D:
    """Draw a variant's line, a point per row; in the colour of text if the variant has no look."""
    look = looks.get(line.variant)
    (drawn,) = axes.plot(
        *zip(*points, strict=True),
        color=look.colour if look else style.ink(),
        marker=look.marker if look else ".",
        linestyle=line.source.dashes,
        label=style.label(line.name, figure),
    )
    _ring(axes, rows, points)
    return drawn


def _ring(axes: Axes, rows: Sequence[Row], points: Points) -> None:
    """Draw rings around the points whose rounds disagree."""
    if shaky := [point for row, point in zip(rows, points, strict=True) if row.unstable]:
        axes.plot(
            *zip(*shaky, strict=True),
            color=style.ink(),
            linestyle="",
            marker="o",
            markersize=12,
            markeredgewidth=1,
            fillstyle="none",
            zorder=3,  # over the lines
            label=RING,
        )


def _legend(axes: Axes, lines: Sequence[Line2D]) -> None:
    """Draw the legend: the lines, and the meaning of rings if there are any."""
    rings = [line for line in axes.lines if line.get_label() == RING]
    style.legend(axes, lines, rings[:1])


# ---- the roofline


def _roofline(group: Sequence[Source]) -> Drawing:
    """A panel for each dtype, cache state and scope; a marker per size and variant."""
    rated = [panel for panel in panels(group, by_size=False) if any(panel.peaks_gflops.values())]
    if not rated:
        raise UsageError("--kind roofline: no row has percent_of_peak, so the roof is unknown")
    return "Roofline, best tile of each size", _with_looks(rated, _roofs)


def _roofs(panel: Panel, looks: Looks, axes: Axes) -> float:
    lines = []
    for line in panel.series:
        rows = line.best_by_size
        points = [(row.arithmetic_intensity or 1.0, row.gflops or 0.0) for row in rows]
        figure = f"{number(rows[-1].percent_of_peak, 1)} % of peak"
        lines.append(_line(axes, line, looks, rows, points, figure))
    peaks = {source: peak for source, peak in panel.peaks_gflops.items() if peak}
    edges = [row.arithmetic_intensity or 1.0 for row in panel.rows]
    edges += [
        peak / source.copy_gbytes_per_s
        for source, peak in peaks.items()
        if source.copy_gbytes_per_s
    ]
    low, high = min(edges) / 4, max(edges) * 1.3
    for source, peak in peaks.items():
        copy = source.copy_gbytes_per_s
        lines += axes.plot(
            [low, peak / copy, high] if copy else [low, high],
            [low * copy, peak, peak] if copy else [peak, peak],
            color=style.ink(),
            linewidth=1.4,
            linestyle=source.dashes,
            label=style.label(
                source.named("roof"),
                f"peak {number(peak, 0)} GFLOP/s",
                f"copy {number(copy, 0)} GB/s" if copy else "slope unknown: --bandwidth",
            ),
        )
    axes.set(
        xlim=(low, high),
        xlabel="arithmetic intensity, FLOP per byte that must move",
        ylabel="GFLOP/s",
    )
    style.log_axis(axes, "x")
    style.log_axis(axes, "y")
    _legend(axes, lines)
    return CURVE_IN


# ---- speed-up over the CPU


def _speedup(group: Sequence[Source]) -> Drawing:
    """A panel for each operation, dtype and scope.

    Speed-ups over the naive loop alone overstate a GPU. So the panel also has the CPU's BLAS, on
    one core and on all cores.
    """
    groups = grouped(
        (line for panel in panels(group, by_size=False) for line in panel.series),
        lambda line: (line.rows[0].op, line.rows[0].dtype, line.rows[0].scope),
    )
    compared = []
    for (op, dtype, scope), lines in groups.items():
        if any(line.variant == NAIVE_LOOP for line in lines):
            devices = " and ".join(dict.fromkeys(line.rows[0].device or "" for line in lines))
            title = f"{op} {dtype}: {devices}{'' if scope == 'kernel' else f', {scope}'}"
            compared.append(Panel(title=title, series=tuple(lines)))
    if not compared:
        raise UsageError(
            f"--kind speedup: no row of '{NAIVE_LOOP}', which speed-ups are over; add the CSV of "
            f"'gpubench sweep --device cpu --variants {NAIVE_LOOP},cpu_blas,cpu_blas_parallel'"
        )
    looks = style.looks([line.variant for line in panel.series] for panel in compared)
    drawn = [(panel.title, partial(_times, panel, looks)) for panel in compared]
    return "Times faster than the naive loop on one CPU core", drawn


def _times(panel: Panel, looks: Looks, axes: Axes) -> float:
    baselines = [row for row in panel.rows if row.variant == NAIVE_LOOP]
    baseline_us = {row.size: row.median_us or 0.0 for row in baselines}
    sizes = {row.size: extent(row) for row in panel.rows if row.size in baseline_us}
    places = style.size_axis(axes, sizes, "matrix size")
    lines = []
    for line in panel.series:
        if rows := [row for row in line.best_by_size if row.size in baseline_us]:
            points = [
                (places[row.size], baseline_us[row.size] / (row.median_us or 1.0)) for row in rows
            ]
            times = points[-1][1]
            figure = f"{number(times, 1 if times < EXACT else 0)} times"
            lines.append(_line(axes, line, looks, rows, points, figure))
    style.log_axis(axes, "y")
    axes.set_ylabel("speed-up")
    _legend(axes, lines)
    return CURVE_IN


# ---- percent of the BLAS


def _blas(group: Sequence[Source]) -> Drawing:
    """A panel for each dtype, cache state and scope, at the largest size of each."""
    groups = grouped(_rows(group), lambda row: (row.op, row.compute_mode))
    largest = {name: max(map(extent, rows)) for name, rows in groups.items()}

    def is_largest(row: Row) -> bool:
        return extent(row) == largest[row.op, row.compute_mode]

    group = [replace(source, rows=tuple(filter(is_largest, source.rows))) for source in group]
    rated = [panel for panel in panels(group, by_size=True) if any(map(_percent, panel.series))]
    if not rated:
        raise UsageError(
            "--kind blas: no row has percent_of_blas; sweep 'cublas' with the kernels, or use "
            "'gpubench compare-cublas'"
        )
    return f"Speed in percent of {rated[0].rows[0].library or 'the BLAS'}, best tile", [
        (panel.title, partial(_bars, panel)) for panel in rated
    ]


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
                color=style.ink() if is_baseline(line.best) else style.COLOURS[0],
                alpha=SHADES[index % len(SHADES)],
            )
            tile = f"tile {line.best.tile}" if line.best.tile else ""
            percent = f"{_percent(line):,.1f} %{' !' * line.best.unstable}"
            about = filter(None, (percent, tile, line.source.label))
            texts[y] = style.label(", ".join(about))
    axes.axvline(100, color=style.ink(), linewidth=1, linestyle=(0, (4, 2)))
    names = [style.label(lines[0].variant) for lines in variants]
    _label_bars(axes, names, texts)
    axes.set_xlabel(f"percent{_marked(line.best for line in rated)}")
    return LINE_IN * len(variants) * len(labels) * style.line_count([*names, *texts.values()])


def _marked(rows: Iterable[Row]) -> str:
    """Explain the mark beside bars; empty if no bar has one."""
    return f" (!: {DISAGREE})" if any(row.unstable for row in rows) else ""


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


# ---- percent of the peak: by size, and for each precision


def _peak(group: Sequence[Source]) -> Drawing:
    """A panel for each operation, precision, device, cache and scope; a pair of lines per state."""
    rows = _rows(group)
    blas = libraries(rows)
    drawn = [
        (f"{op} {mode} on {device}, {cache} cache", partial(_peak_by_size, panel_rows, blas))
        for (op, mode, device, cache, _), panel_rows in _groups_by_size(rows).items()
    ]
    if not drawn:
        raise UsageError("--kind peak: no two sizes have percent_of_peak; sweep several --sizes")
    return "Percent of the peak: fastest kernel and BLAS", drawn


def _groups_by_size(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows of each panel that has several sizes."""
    rated = [row for row in rows if row.percent_of_peak]
    groups = grouped(
        rated, lambda row: (row.op, row.compute_mode, row.device, row.cache, row.scope)
    )
    return {key: group for key, group in groups.items() if len({row.size for row in group}) > 1}


def _peak_by_size(rows: Sequence[Row], blas: set[str], axes: Axes) -> float:
    places = style.size_axis(axes, {row.size: extent(row) for row in rows}, "matrix size")
    lines: list[Line2D] = []
    for dashes, (state, state_rows) in zip(
        style.DASHES, grouped(rows, lambda row: row.state).items(), strict=False
    ):
        for is_blas, what in enumerate(("fastest kernel", "BLAS")):
            alike = [row for row in state_rows if (row.variant in blas) == is_blas]
            by_size = map(best_of, grouped(alike, lambda row: row.size).values())
            best = sorted(by_size, key=lambda row: places[row.size])
            if best:
                share = f"{number(best[-1].percent_of_peak, 1)} % at {best[-1].size}"
                points = [(places[row.size], row.percent_of_peak or 0.0) for row in best]
                _ring(axes, best, points)
                lines += axes.plot(
                    *zip(*points, strict=True),
                    color=style.ink() if is_blas else style.COLOURS[0],
                    marker=style.MARKERS[is_blas],
                    linestyle=dashes,
                    label=style.label(f"{what}, {state}", share),
                )
    axes.set_ylim(0, 100)
    axes.set_ylabel("percent of the theoretical peak")
    _legend(axes, lines)
    return CURVE_IN


def _precisions(group: Sequence[Source]) -> Drawing:
    """A panel for each operation, device, cache, state and scope."""
    rows = [row for row in _rows(group) if row.percent_of_peak]
    rows.sort(key=lambda row: _PLACES.get(row.compute_mode, len(_PLACES)))
    blas = libraries(rows)
    groups = grouped(rows, lambda row: (row.op, row.device, row.cache, row.state, row.scope))
    drawn = [
        (f"{op} on {device}, {cache} cache, {state}", partial(_peak_shares, panel_rows, blas))
        for (op, device, cache, state, _), panel_rows in groups.items()
        if _has_precisions(panel_rows)
    ]
    if not drawn:
        raise UsageError(
            "--kind precisions: no two precisions have percent_of_peak; sweep several --dtypes"
        )
    return "Percent of each precision's peak: fastest kernel and BLAS, largest size", drawn


_PLACES = {dtype: place for place, dtype in enumerate(DTYPES)}


def _has_precisions(rows: Sequence[Row]) -> bool:
    return len({row.compute_mode for row in rows if row.percent_of_peak}) > 1


def _peak_shares(rows: Sequence[Row], blas: set[str], axes: Axes) -> float:
    """Draw bars of the fastest kernel and of the BLAS, for each precision at its largest size."""
    modes = grouped(rows, lambda row: row.compute_mode)
    texts, drawn = {}, []
    for place, mode_rows in enumerate(modes.values()):
        largest = max(map(extent, mode_rows))
        for is_blas, colour in ((False, style.COLOURS[0]), (True, style.ink())):
            alike = [row for row in mode_rows if (row.variant in blas) == is_blas]
            if alike := [row for row in alike if extent(row) == largest]:
                best = best_of(alike)
                drawn.append(best)
                y = place + (0.2 if is_blas else -0.2)
                axes.barh(y, best.percent_of_peak or 0.0, 0.36, color=colour)
                share = f"{number(best.percent_of_peak, 1)} %{' !' * best.unstable}"
                texts[y] = style.label(f"{share}, {best.variant} at {best.size}")
    _label_bars(axes, list(map(style.label, modes)), texts)
    axes.set_xlim(0, 100)
    axes.set_xlabel(f"percent of the theoretical peak{_marked(drawn)}")
    return 2 * LINE_IN * len(modes) * style.line_count(texts.values())


KINDS: dict[Kind, Callable[[Sequence[Source]], Drawing]] = {
    Kind.TILES: _tiles,
    Kind.SIZES: _sizes,
    Kind.BLAS: _blas,
    Kind.PEAK: _peak,
    Kind.PRECISIONS: _precisions,
    Kind.ROOFLINE: _roofline,
    Kind.SPEEDUP: _speedup,
}
"""The kinds that draw rows."""
