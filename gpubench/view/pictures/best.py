"""Pictures of each variant at its best tile: speed by size, in percent of BLAS, roofline, speed-up.

The roofline is that of Williams, Waterman and Patterson, 2009. Intensity counts the bytes that must
move (each operand once): a kernel that loads more than that falls below the roof, none can stand
above it while its operands come from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gpubench.errors import UsageError
from gpubench.model import OPERATIONS
from gpubench.row import Row
from gpubench.view.pictures import Theme
from gpubench.view.pictures.series import (
    Panel,
    Series,
    Source,
    extent,
    grouped,
    is_baseline,
    panels,
    peak_gflops,
)
from gpubench.view.pictures.style import (
    COLOURS,
    Look,
    Picture,
    compose,
    ink,
    label,
    legend,
    line_count,
    log_axis,
    looks,
    size_axis,
)
from gpubench.view.tables import number

HEIGHT_IN, BAR_IN = 3.8, 0.23

SHADES = (1.0, 0.65, 0.4, 0.25)
"""Opacity of the bars, one a source."""

CPU_BASELINE = "cpu_naive"
"""What speed-ups are over."""

EXACT = 100
"""Below, a speed-up is written with a decimal."""

Looks = Mapping[str, Look]


# ---- speed against size


@dataclass(frozen=True, kw_only=True)
class Rate:
    """The figure of merit of an operation."""

    unit: str
    of: Callable[[Row], float | None]
    limited_by: str
    limit: Callable[[Source, Sequence[Row]], float | None]


def draw_sizes(of: Sequence[Source], theme: Theme) -> Picture:
    """A panel for each dtype, cache state and scope: under the peak and beside the BLAS."""
    found = panels(of, by_size=False)
    look_of = _looks(found)
    return compose(
        "Speed against size, best tile",
        [(panel.title, partial(_sizes, panel, look_of)) for panel in found],
        theme,
    )


def _looks(of: Sequence[Panel]) -> Looks:
    """The look of all but the BLAS, which has the ink of text and frames if there is only one."""
    lines = [line for panel in of for line in panel.series]
    baselines = {line.variant for line in lines if is_baseline(line.best)}
    without = baselines if len(baselines) == 1 else set()
    return looks(
        [line.variant for line in panel.series if line.variant not in without] for panel in of
    )


def _sizes(panel: Panel, look_of: Looks, axes: Axes) -> float:
    rate = _rate(panel.rows[0])
    places = size_axis(axes, {row.size: extent(row) for row in panel.rows}, "matrix size")
    lines = []
    for line in panel.series:
        rows = line.best_by_size
        values = [rate.of(row) or 0.0 for row in rows]
        figure = f"{number(values[-1], 0)} {rate.unit}"
        xs = [places[row.size] for row in rows]
        lines.append(_line(axes, line, look_of, xs, values, figure))
    for source, series in grouped(panel.series, lambda line: line.source).items():
        limit = rate.limit(source, [row for line in series for row in line.rows])
        if limit:
            name = f"{rate.limited_by}, {source.label}" if source.label else rate.limited_by
            text = label(name, f"{number(limit, 0)} {rate.unit}")
            dots = (0, (1, 2))
            lines.append(axes.axhline(limit, color=ink(), linewidth=1, linestyle=dots, label=text))
    log_axis(axes, "y")
    axes.set_ylabel(rate.unit)
    legend(axes, lines)
    return HEIGHT_IN


def _rate(row: Row) -> Rate:
    """Bytes a second under a copy's where memory sets the pace, else operations under the peak."""
    if row.op in OPERATIONS and OPERATIONS[row.op].bandwidth_bound:
        return Rate(
            unit="GB/s",
            of=lambda row: row.gbytes_per_s,
            limited_by="copy",
            limit=lambda source, _rows: source.copy_gbytes_per_s,
        )
    return Rate(
        unit="Gop/s" if row.dtype.startswith("int") else "GFLOP/s",
        of=lambda row: row.gflops,
        limited_by="peak",
        limit=lambda _source, rows: peak_gflops(rows),
    )


def _line(
    axes: Axes,
    line: Series,
    look_of: Looks,
    xs: Sequence[float],
    ys: Sequence[float],
    figure: str,
) -> Line2D:
    """A variant's line; in ink and without markers if it has no look."""
    look = look_of.get(line.variant)
    (drawn,) = axes.plot(
        xs,
        ys,
        color=look.colour if look else ink(),
        marker=look.marker if look else ".",
        linestyle=line.source.dashes,
        label=label(line.name, figure),
    )
    return drawn


# ---- the roofline


def draw_roofline(of: Sequence[Source], theme: Theme) -> Picture:
    """A panel for each dtype, cache state and scope; a marker a size and variant."""
    found = [panel for panel in panels(of, by_size=False) if peak_gflops(panel.rows)]
    if not found:
        raise UsageError("--kind roofline: no row has percent_of_peak, so the roof is not known")
    look_of = _looks(found)
    return compose(
        "Roofline, best tile of each size",
        [(panel.title, partial(_roofline, panel, look_of)) for panel in found],
        theme,
    )


def _roofline(panel: Panel, look_of: Looks, axes: Axes) -> float:
    lines = []
    for line in panel.series:
        rows = line.best_by_size
        xs = [row.arithmetic_intensity or 1.0 for row in rows]
        ys = [row.gflops or 0.0 for row in rows]
        figure = f"{number(rows[-1].percent_of_peak, 1)} % of peak"
        lines.append(_line(axes, line, look_of, xs, ys, figure))
    roofs = {}
    for source, series in grouped(panel.series, lambda line: line.source).items():
        if peak := peak_gflops(row for line in series for row in line.rows):
            roofs[source] = peak
    ridges = [peak / of.copy_gbytes_per_s for of, peak in roofs.items() if of.copy_gbytes_per_s]
    intensities = [row.arithmetic_intensity or 1.0 for row in panel.rows]
    low, high = min(*intensities, *ridges) / 4, max(*intensities, *ridges) * 1.3
    for source, peak in roofs.items():
        copy = source.copy_gbytes_per_s
        (roof,) = axes.plot(
            [low, peak / copy, high] if copy else [low, high],
            [low * copy, peak, peak] if copy else [peak, peak],
            color=ink(),
            linewidth=1.4,
            linestyle=source.dashes,
            label=label(
                f"roof, {source.label}" if source.label else "roof",
                f"peak {number(peak, 0)} GFLOP/s",
                f"copy {number(copy, 0)} GB/s" if copy else "",
            ),
        )
        lines.append(roof)
    axes.set_xlim(low, high)
    log_axis(axes, "x")
    log_axis(axes, "y")
    axes.set_xlabel("arithmetic intensity, FLOP per byte that must move")
    axes.set_ylabel("GFLOP/s")
    legend(axes, lines)
    return HEIGHT_IN


# ---- speed-up over the CPU


def draw_speedup(of: Sequence[Source], theme: Theme) -> Picture:
    """A panel for each operation, dtype and scope.

    Speed-ups over the naive loop alone flatter a GPU: the CPU's BLAS, on one core and on all,
    stands in the same panel.
    """
    groups = grouped(
        (line for panel in panels(of, by_size=False) for line in panel.series),
        lambda line: (line.rows[0].op, line.rows[0].dtype, line.rows[0].scope),
    )
    found = [lines for lines in groups.values() if _baseline_us(lines)]
    if not found:
        raise UsageError(
            f"--kind speedup: no row of '{CPU_BASELINE}', which speed-ups are over; give the CSV "
            f"of 'gpubench sweep --device cpu --variants {CPU_BASELINE},cpu_blas,cpu_blas_parallel'"
            " too"
        )
    look_of = looks([line.variant for line in lines] for lines in found)
    return compose(
        "Times faster than the naive loop on one CPU core",
        [(_title(lines), partial(_speedup, lines, look_of)) for lines in found],
        theme,
    )


def _title(lines: Sequence[Series]) -> str:
    """`gemm float32: NVIDIA H200 and AMD EPYC 9575F`."""
    row = lines[0].rows[0]
    devices = " and ".join(dict.fromkeys(line.rows[0].device or "" for line in lines))
    return f"{row.op} {row.dtype}: {devices}{'' if row.scope == 'kernel' else f', {row.scope}'}"


def _baseline_us(series: Sequence[Series]) -> dict[str, float]:
    """Microseconds of the naive loop by size."""
    rows = [row for line in series if line.variant == CPU_BASELINE for row in line.rows]
    return {row.size: row.median_us or 0.0 for row in rows}


def _speedup(series: Sequence[Series], look_of: Looks, axes: Axes) -> float:
    baseline_us = _baseline_us(series)
    rows = [row for line in series for row in line.rows if row.size in baseline_us]
    places = size_axis(axes, {row.size: extent(row) for row in rows}, "matrix size")
    lines = []
    for line in series:
        if best := [row for row in line.best_by_size if row.size in baseline_us]:
            times = [baseline_us[row.size] / (row.median_us or 1.0) for row in best]
            figure = f"{number(times[-1], 1 if times[-1] < EXACT else 0)} times"
            xs = [places[row.size] for row in best]
            lines.append(_line(axes, line, look_of, xs, times, figure))
    log_axis(axes, "y")
    axes.set_ylabel("speed-up")
    legend(axes, lines)
    return HEIGHT_IN


# ---- percent of the BLAS


def draw_blas(of: Sequence[Source], theme: Theme) -> Picture:
    """A panel for each dtype, cache state and scope, at the largest size of each."""
    found = [panel for panel in panels(_largest(of), by_size=True) if _rated(panel)]
    if not found:
        raise UsageError(
            "--kind blas: no row has percent_of_blas; sweep 'cublas' with the kernels, or use "
            "'gpubench compare-cublas'"
        )
    return compose(
        f"Speed in percent of {found[0].rows[0].library or 'the BLAS'}, best tile",
        [(panel.title, partial(_bars, panel)) for panel in found],
        theme,
    )


def _largest(of: Sequence[Source]) -> list[Source]:
    """Only the rows of the largest size of each operation and dtype."""
    groups = grouped((row for source in of for row in source.rows), lambda r: (r.op, r.dtype))
    largest = {name: max(map(extent, rows)) for name, rows in groups.items()}
    return [
        replace(
            source,
            rows=tuple(row for row in source.rows if extent(row) == largest[row.op, row.dtype]),
        )
        for source in of
    ]


def _rated(panel: Panel) -> list[list[Series]]:
    """The lines of each variant, slowest variant first."""
    rated = [line for line in panel.series if line.best.percent_of_blas is not None]
    variants = grouped(rated, lambda line: line.variant).values()
    return sorted(variants, key=lambda lines: max(_percent(line) for line in lines))


def _bars(panel: Panel, axes: Axes) -> float:
    variants = _rated(panel)
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
                color=ink() if is_baseline(line.best) else COLOURS[0],
                alpha=SHADES[index % len(SHADES)],
            )
            tile = f"tile {line.best.tile}" if line.best.tile else ""
            about = filter(None, (f"{_percent(line):,.1f} %", tile, line.source.label))
            texts[y] = label(", ".join(about))
    axes.axvline(100, color=ink(), linewidth=1, linestyle=(0, (4, 2)))
    axes.set_ylim(len(variants) - 0.45, -0.55)
    names = [label(lines[0].variant) for lines in variants]
    axes.set_yticks(range(len(variants)), names)
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(list(texts), list(texts.values()))
    beside.spines["right"].set_visible(False)
    for side in (axes, beside):
        side.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("percent")
    return BAR_IN * len(variants) * len(labels) * line_count([*names, *texts.values()])


def _percent(line: Series) -> float:
    return line.best.percent_of_blas or 0.0
