"""The kinds of pictures: which suits a file, and how each draws its rows.

The roofline is that of Williams, Waterman and Patterson, 2009. Intensity counts the bytes that must
move (each operand once): a kernel that loads more than that falls below the roof, none can stand
above it while its operands come from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gpubench.errors import UsageError
from gpubench.model import DTYPES, OPERATIONS
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
from gpubench.view.tables import DISAGREE, best_of, milliseconds, number

CURVE = 3
"""Points from which on a line says something; powers of two enough to name no other tiles."""

CURVE_IN, LINE_IN = 3.8, 0.23
"""Height of axes, and of a line of text beside bars."""

TILES_IN, TILE_IN = 3.5, 0.21

MAX_BLOCK_TILES = 24
"""Of block tiles, the fastest so many are drawn."""

SHADES = (1.0, 0.65, 0.4, 0.25)
"""Opacity of the bars, one a source."""

CPU_BASELINE = "cpu_naive"
"""What speed-ups are over."""

EXACT = 100
"""Below, a speed-up is written with a decimal."""

RING = style.label(DISAGREE)
"""What stands for rings in a legend."""

Looks = Mapping[str, style.Look]
Points = Sequence[tuple[float, float]]
Drawing = tuple[str, style.Panels]
"""The headline and the panels of a picture."""


def draw(
    of: Sequence[Source], kind: str = Kind.AUTO, *, theme: str = Theme.LIGHT, strip: bool = False
) -> style.Picture:
    """The picture. Raises UsageError if kind or theme are unknown, or the rows do not suffice."""
    if theme not in list(Theme):
        raise UsageError(f"--theme: {unknown('theme', theme, list(Theme))}")
    headline, drawn = KINDS[resolve(of, kind)](of)
    return style.compose(headline, drawn, Theme(theme), strip=strip)


def resolve(of: Sequence[Source], kind: str) -> Kind:
    """The kind itself, for `auto` the one that shows what the rows vary.

    Raises UsageError if the kind is unknown or there are no rows.
    """
    if kind != Kind.AUTO and kind not in KINDS:
        raise UsageError(f"--kind: {unknown('kind', kind, list(Kind))}")
    if not of:
        raise UsageError("nothing to draw: no row has a time")
    if kind != Kind.AUTO:
        return Kind(kind)
    rows = [row for source in of for row in source.rows]
    if len({row.backend for row in rows}) > 1:
        return Kind.SPEEDUP if any(row.variant == CPU_BASELINE for row in rows) else Kind.SIZES
    sizes = len({(row.m, row.n, row.k) for row in rows})
    edges = len({edge_of(row) for row in rows} - {None})
    if max(sizes, edges) >= CURVE:
        return Kind.SIZES if sizes >= edges else Kind.TILES
    if any(row.percent_of_blas for row in rows):
        return Kind.BLAS
    return Kind.TILES if any(row.tile for row in rows) else Kind.SIZES


def fitting(of: Sequence[Source]) -> list[Kind]:
    """Every kind that the rows suffice for and that would show more than one figure."""
    rows = [row for source in of for row in source.rows]
    tests = {
        Kind.TILES: len({row.tile for row in rows if row.tile}) >= CURVE,
        Kind.SIZES: len({(row.m, row.n, row.k) for row in rows}) >= CURVE,
        Kind.BLAS: any(row.percent_of_blas and not is_baseline(row) for row in rows),
        Kind.PEAK: len({row.state for row in rows}) > 1 and bool(_of_several_sizes(rows)),
        Kind.PRECISIONS: _has_precisions(rows),
        Kind.ROOFLINE: any(row.percent_of_peak for row in rows),
        Kind.SPEEDUP: len({row.backend for row in rows}) > 1
        and any(row.variant == CPU_BASELINE for row in rows),
    }
    return [kind for kind in KINDS if tests[kind]]


# ---- time against tile size: a line a variant, its best tile large, crosses where it spills


def _tiles(of: Sequence[Source]) -> Drawing:
    """Per problem, a panel of the tiles given by an edge, and one of the block tiles, if any."""
    found = panels(of, by_size=True)
    edges = [panel for panel in found if any(map(edge_of, panel.rows))]
    blocks = [panel for panel in found if any(map(_is_block, panel.rows))]
    if not edges and not blocks:
        raise UsageError("--kind tiles: no row has a tile; --kind blas compares without tiles")
    look_of = style.looks(
        [line.variant for test in tests for line in _having(panel, test)]
        for panel in found
        for tests in ((edge_of, _has_no_tile), (_is_block,))
    )
    return "Time against tile size", [
        *((panel.title, partial(_edges, panel, look_of)) for panel in edges),
        *((f"{panel.title}: block tiles", partial(_blocks, panel, look_of)) for panel in blocks),
    ]


def _edges(panel: Panel, look_of: Looks, axes: Axes) -> float:
    lines = [_curve(axes, line, look_of[line.variant]) for line in _having(panel, edge_of)]
    flat = _having(panel, _has_no_tile)
    is_alone = len({line.variant for line in flat}) == 1
    for line in flat:
        drawn = axes.axhline(
            _ms(line.best),
            color=style.ink() if is_alone else look_of[line.variant].colour,
            linewidth=1,
            linestyle=line.source.dashes,
            label=style.label(line.name, f"{milliseconds(line.best.median_us)} ms"),
        )
        lines.append(drawn)
    tiles = sorted({edge for row in panel.rows if (edge := edge_of(row))})
    powers = [tile for tile in tiles if tile & (tile - 1) == 0]
    named = powers if len(powers) >= CURVE else tiles
    style.size_axis(axes, {str(tile): tile for tile in named}, f"tile size{_key(panel)}")
    style.log_axis(axes, "y")
    axes.set_ylabel("time per launch, ms")
    _legend(axes, lines)
    return TILES_IN


def _curve(axes: Axes, line: Series, look: style.Look) -> Line2D:
    """Draw the line; what stands for it in the legend."""
    rows = sorted(filter(edge_of, line.rows), key=lambda row: int(row.tile))
    tiles = [int(row.tile) for row in rows]
    low = [(row.ci_low_us or row.median_us or 0.0) / 1e3 for row in rows]
    high = [(row.ci_high_us or row.median_us or 0.0) / 1e3 for row in rows]
    line_style: dict[str, Any] = {"color": look.colour, "linestyle": line.source.dashes}
    axes.plot(tiles, [_ms(row) for row in rows], **line_style)
    axes.fill_between(tiles, low, high, color=look.colour, alpha=0.25, linewidth=0)
    best = line.best
    alike = grouped(rows, lambda row: (row is best, bool(row.local_bytes)))
    for (is_best, _), of_marker in alike.items():
        points = [int(row.tile) for row in of_marker], [_ms(row) for row in of_marker]
        axes.plot(*points, **_marker(of_marker[0], look, largest=is_best))
    _ring(axes, rows, [(int(row.tile), _ms(row)) for row in rows])
    text = style.label(line.name, f"best {best.tile}: {milliseconds(best.median_us)} ms")
    return Line2D([tiles[-1]], [_ms(rows[-1])], **line_style, marker=look.marker, label=text)


def _blocks(panel: Panel, look_of: Looks, axes: Axes) -> float:
    """Block tiles have no order: one below the other, the fastest on top."""
    pairs = [(line, row) for line in panel.series for row in line.rows if _is_block(row)]
    pairs = sorted(pairs, key=lambda pair: _ms(pair[1]))[:MAX_BLOCK_TILES]
    for place, (line, row) in enumerate(pairs):
        axes.plot(_ms(row), place, **_marker(row, look_of[line.variant], largest=row is line.best))
    axes.yaxis.tick_right()
    texts = [style.label(f"{line.name}  {row.tile}") for line, row in pairs]
    style.name_rows(axes, texts)
    for text, (line, _) in zip(axes.get_yticklabels(), pairs, strict=True):
        text.set_color(look_of[line.variant].colour)
    rows = [row for _, row in pairs]
    _ring(axes, rows, [(_ms(row), place) for place, row in enumerate(rows)])
    ring = f"; ring: {DISAGREE}" if any(row.unstable for row in rows) else ""
    style.log_axis(axes, "x")
    axes.set_xlabel(f"time per launch, ms{_key(panel)}{ring}")
    return max(1.0, TILE_IN * len(pairs) * style.line_count(texts))


def _having(panel: Panel, test: Callable[[Row], object]) -> list[Series]:
    """The lines with a row that passes the test."""
    return [line for line in panel.series if any(map(test, line.rows))]


def _has_no_tile(row: Row) -> bool:
    return not row.tile


def _is_block(row: Row) -> bool:
    return bool(row.tile) and edge_of(row) is None


def _key(panel: Panel) -> str:
    """What the markers mean, behind an axis' title."""
    spills = any(row.tile and row.local_bytes for row in panel.rows)
    return " (large: best tile; cross: uses local memory)" if spills else " (large: best tile)"


def _marker(row: Row, look: style.Look, *, largest: bool) -> dict[str, Any]:
    """Matplotlib's options for a tile: a cross where registers or arrays are in local memory."""
    size = 9.0 if largest else 5.0 if row.local_bytes else 4.0
    shape = {"marker": "x", "markeredgewidth": 1.3} if row.local_bytes else {"marker": look.marker}
    return {"linestyle": "", "color": look.colour, "markersize": size} | shape


def _ms(row: Row) -> float:
    return (row.median_us or 0.0) / 1e3


# ---- each variant at its best tile: speed against size


def _sizes(of: Sequence[Source]) -> Drawing:
    """A panel for each dtype, cache state and scope: under the peak and beside the BLAS."""
    return "Speed against size, best tile", _with_looks(panels(of, by_size=False), _rates)


def _with_looks(
    of: Sequence[Panel], draw_panel: Callable[[Panel, Looks, Axes], float]
) -> list[tuple[str, Callable[[Axes], float]]]:
    """The panels, all but the BLAS with a look: it has the ink of text if there is only one."""
    lines = [line for panel in of for line in panel.series]
    baselines = {line.variant for line in lines if is_baseline(line.best)}
    without = baselines if len(baselines) == 1 else set()
    look_of = style.looks(
        [line.variant for line in panel.series if line.variant not in without] for panel in of
    )
    return [(panel.title, partial(draw_panel, panel, look_of)) for panel in of]


def _rates(panel: Panel, look_of: Looks, axes: Axes) -> float:
    """Bytes a second under a copy's where memory sets the pace, else operations under the peak."""
    op, dtype = panel.rows[0].op, panel.rows[0].dtype
    if op in OPERATIONS and OPERATIONS[op].bandwidth_bound:
        rate, unit, limited_by = "gbytes_per_s", "GB/s", "copy"
    else:
        rate, limited_by = "gflops", "peak"
        unit = "Gop/s" if dtype.startswith("int") else "GFLOP/s"
    places = style.size_axis(axes, {row.size: extent(row) for row in panel.rows}, "matrix size")
    lines = []
    for line in panel.series:
        rows = line.best_by_size
        points = [(places[row.size], getattr(row, rate) or 0.0) for row in rows]
        figure = f"{number(points[-1][1], 0)} {unit}"
        lines.append(_line(axes, line, look_of, rows, points, figure))
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
    axes: Axes, line: Series, look_of: Looks, rows: Sequence[Row], points: Points, figure: str
) -> Line2D:
    """A variant's line, a point a row; in ink and with dots if it has no look."""
    look = look_of.get(line.variant)
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
    """Draw rings around the rows' points on which nothing may rest."""
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
    """The lines, and what a ring means if there is one."""
    rings = [line for line in axes.lines if line.get_label() == RING]
    style.legend(axes, lines, rings[:1])


# ---- the roofline


def _roofline(of: Sequence[Source]) -> Drawing:
    """A panel for each dtype, cache state and scope; a marker a size and variant."""
    found = [panel for panel in panels(of, by_size=False) if any(panel.peaks_gflops.values())]
    if not found:
        raise UsageError("--kind roofline: no row has percent_of_peak, so the roof is not known")
    return "Roofline, best tile of each size", _with_looks(found, _roofs)


def _roofs(panel: Panel, look_of: Looks, axes: Axes) -> float:
    lines = []
    for line in panel.series:
        rows = line.best_by_size
        points = [(row.arithmetic_intensity or 1.0, row.gflops or 0.0) for row in rows]
        figure = f"{number(rows[-1].percent_of_peak, 1)} % of peak"
        lines.append(_line(axes, line, look_of, rows, points, figure))
    peaks = {source: peak for source, peak in panel.peaks_gflops.items() if peak}
    edges = [row.arithmetic_intensity or 1.0 for row in panel.rows]
    edges += [peak / of.copy_gbytes_per_s for of, peak in peaks.items() if of.copy_gbytes_per_s]
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
                f"copy {number(copy, 0)} GB/s" if copy else "slope not known: --bandwidth",
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


def _speedup(of: Sequence[Source]) -> Drawing:
    """A panel for each operation, dtype and scope.

    Speed-ups over the naive loop alone flatter a GPU: the CPU's BLAS, on one core and on all,
    stands in the same panel.
    """
    groups = grouped(
        (line for panel in panels(of, by_size=False) for line in panel.series),
        lambda line: (line.rows[0].op, line.rows[0].dtype, line.rows[0].scope),
    )
    found = []
    for (op, dtype, scope), lines in groups.items():
        if any(line.variant == CPU_BASELINE for line in lines):
            devices = " and ".join(dict.fromkeys(line.rows[0].device or "" for line in lines))
            title = f"{op} {dtype}: {devices}{'' if scope == 'kernel' else f', {scope}'}"
            found.append(Panel(title=title, series=tuple(lines)))
    if not found:
        raise UsageError(
            f"--kind speedup: no row of '{CPU_BASELINE}', which speed-ups are over; give the CSV "
            f"of 'gpubench sweep --device cpu --variants {CPU_BASELINE},cpu_blas,cpu_blas_parallel'"
            " too"
        )
    look_of = style.looks([line.variant for line in panel.series] for panel in found)
    drawn = [(panel.title, partial(_times, panel, look_of)) for panel in found]
    return "Times faster than the naive loop on one CPU core", drawn


def _times(panel: Panel, look_of: Looks, axes: Axes) -> float:
    baselines = [row for row in panel.rows if row.variant == CPU_BASELINE]
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
            lines.append(_line(axes, line, look_of, rows, points, figure))
    style.log_axis(axes, "y")
    axes.set_ylabel("speed-up")
    _legend(axes, lines)
    return CURVE_IN


# ---- percent of the BLAS


def _blas(of: Sequence[Source]) -> Drawing:
    """A panel for each dtype, cache state and scope, at the largest size of each."""
    rows = (row for source in of for row in source.rows)
    groups = grouped(rows, lambda row: (row.op, row.compute_mode))
    largest = {name: max(map(extent, rows)) for name, rows in groups.items()}

    def is_largest(row: Row) -> bool:
        return extent(row) == largest[row.op, row.compute_mode]

    of = [replace(source, rows=tuple(filter(is_largest, source.rows))) for source in of]
    found = [panel for panel in panels(of, by_size=True) if any(map(_percent, panel.series))]
    if not found:
        raise UsageError(
            "--kind blas: no row has percent_of_blas; sweep 'cublas' with the kernels, or use "
            "'gpubench compare-cublas'"
        )
    return f"Speed in percent of {found[0].rows[0].library or 'the BLAS'}, best tile", [
        (panel.title, partial(_bars, panel)) for panel in found
    ]


def _bars(panel: Panel, axes: Axes) -> float:
    """A bar for each variant and source, the slowest variant on top."""
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
    """What the mark beside the rows' bars means, if there is one."""
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


# ---- percent of the peak: by size, and the precisions side by side


def _peak(of: Sequence[Source]) -> Drawing:
    """A panel for each operation, precision, device, cache and scope; a pair of lines a state."""
    rows = [row for source in of for row in source.rows]
    blas = libraries(rows)
    drawn = [
        (f"{op} {mode} on {device}, {cache} cache", partial(_peak_by_size, of_group, blas))
        for (op, mode, device, cache, _), of_group in _of_several_sizes(rows).items()
    ]
    if not drawn:
        raise UsageError("--kind peak: no two sizes have percent_of_peak; sweep several --sizes")
    return "Percent of the peak: fastest kernel and BLAS", drawn


def _of_several_sizes(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """The rows of a panel each."""
    rated = [row for row in rows if row.percent_of_peak]
    groups = grouped(
        rated, lambda row: (row.op, row.compute_mode, row.device, row.cache, row.scope)
    )
    return {key: group for key, group in groups.items() if len({row.size for row in group}) > 1}


def _peak_by_size(rows: Sequence[Row], blas: set[str], axes: Axes) -> float:
    places = style.size_axis(axes, {row.size: extent(row) for row in rows}, "matrix size")
    lines: list[Line2D] = []
    for dashes, (state, of_state) in zip(
        style.DASHES, grouped(rows, lambda row: row.state).items(), strict=False
    ):
        for is_blas, what in enumerate(("fastest kernel", "BLAS")):
            alike = [row for row in of_state if (row.variant in blas) == is_blas]
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


def _precisions(of: Sequence[Source]) -> Drawing:
    """A panel for each operation, device, cache, state and scope."""
    rows = [row for source in of for row in source.rows if row.percent_of_peak]
    rows.sort(key=lambda row: _PLACES.get(row.compute_mode, len(_PLACES)))
    blas = libraries(rows)
    groups = grouped(rows, lambda row: (row.op, row.device, row.cache, row.state, row.scope))
    drawn = [
        (f"{op} on {device}, {cache} cache, {state}", partial(_shares, of_group, blas))
        for (op, device, cache, state, _), of_group in groups.items()
        if _has_precisions(of_group)
    ]
    if not drawn:
        raise UsageError(
            "--kind precisions: no two precisions have percent_of_peak; sweep several --dtypes"
        )
    return "Percent of each precision's peak: fastest kernel and BLAS, largest size", drawn


_PLACES = {dtype: place for place, dtype in enumerate(DTYPES)}


def _has_precisions(rows: Sequence[Row]) -> bool:
    return len({row.compute_mode for row in rows if row.percent_of_peak}) > 1


def _shares(rows: Sequence[Row], blas: set[str], axes: Axes) -> float:
    """For each precision, at its largest size, a bar of the fastest kernel and one of the BLAS."""
    of_modes = grouped(rows, lambda row: row.compute_mode)
    texts, drawn = {}, []
    for place, of_mode in enumerate(of_modes.values()):
        largest = max(map(extent, of_mode))
        for is_blas, colour in ((False, style.COLOURS[0]), (True, style.ink())):
            alike = [row for row in of_mode if (row.variant in blas) == is_blas]
            if alike := [row for row in alike if extent(row) == largest]:
                best = best_of(alike)
                drawn.append(best)
                y = place + (0.2 if is_blas else -0.2)
                axes.barh(y, best.percent_of_peak or 0.0, 0.36, color=colour)
                share = f"{number(best.percent_of_peak, 1)} %{' !' * best.unstable}"
                texts[y] = style.label(f"{share}, {best.variant} at {best.size}")
    _label_bars(axes, list(map(style.label, of_modes)), texts)
    axes.set_xlim(0, 100)
    axes.set_xlabel(f"percent of the theoretical peak{_marked(drawn)}")
    return 2 * LINE_IN * len(of_modes) * style.line_count(texts.values())


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
