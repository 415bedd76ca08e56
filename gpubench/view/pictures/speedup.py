"""How many times faster than a CPU: over the naive loop on one core, and over tuned BLAS."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from gpubench.errors import UsageError
from gpubench.view.pictures.labels import EndLabel, height_for, label_ends, room_for
from gpubench.view.pictures.series import Series, Source, grouped, panels
from gpubench.view.pictures.sizes import best_by_size
from gpubench.view.pictures.style import (
    Look,
    Picture,
    head,
    ink_of,
    log_ticks,
    looks,
    sheet,
    size_ticks,
    source_key,
)
from gpubench.view.tables import number

BASELINE = "cpu_naive"
HEIGHT_IN = 4.0

EXACT = 100
"""Below, a speed-up is written with a decimal."""


def draw(of: Sequence[Source]) -> Picture:
    """A panel for each operation, dtype and scope; the CPU's own variants are grey.

    Speed-ups over the naive loop alone flatter a GPU: the CPU's BLAS, on one core and on all,
    stands in the same panel.
    """
    groups = grouped(
        (one for panel in panels(of, by_size=False) for one in panel.series),
        lambda one: (one.rows[0].op, one.rows[0].dtype, one.rows[0].scope),
    )
    found = {name: series for name, series in groups.items() if _baseline(series)}
    if not found:
        raise UsageError(
            f"--kind speedup: no row of '{BASELINE}', which speed-ups are over; give the CSV of "
            f"'gpubench sweep --device cpu --variants {BASELINE},cpu_blas,cpu_blas_parallel' too"
        )
    every = [one for series in found.values() for one in series]
    labels = [one.label for one in of if any(row.backend == "cuda" for row in one.rows)]
    look = looks(
        dict.fromkeys(one.variant for one in every if one.rows[0].backend == "cuda"), labels
    )
    right = room_for([*(one.variant for one in every), "000,000.0 times"])
    counts = [len({one.variant for one in series}) for series in found.values()]
    heights = [height_for(count, HEIGHT_IN) for count in counts]
    figure, axes = sheet("Times faster than the naive loop on one CPU core", heights, right)
    for ((op, dtype, scope), series), ax in zip(found.items(), axes, strict=True):
        _panel(ax, series, look)
        devices = dict.fromkeys(one.rows[0].device or "" for one in series)
        end_to_end = "" if scope == "kernel" else f", {scope}"
        head(
            ax,
            f"{op} {dtype}: {' and '.join(devices)}{end_to_end}",
            source_key(labels if len(labels) > 1 else []),
        )
    return figure


def _baseline(series: Sequence[Series]) -> dict[tuple[int, int, int], float]:
    """Microseconds of the naive loop by size."""
    return {
        (row.m, row.n, row.k): row.median_us or 0.0
        for one in series
        if one.variant == BASELINE
        for row in one.rows
    }


def _panel(axes: Axes, series: Sequence[Series], look: dict[tuple[str, str], Look]) -> None:
    baseline = _baseline(series)
    ends: dict[str, EndLabel] = {}
    places = size_ticks(
        axes, [row for one in series for row in one.rows if (row.m, row.n, row.k) in baseline]
    )
    for one in series:
        rows = [row for row in best_by_size(one) if (row.m, row.n, row.k) in baseline]
        if not rows:
            continue
        times = [baseline[row.m, row.n, row.k] / (row.median_us or 1.0) for row in rows]
        at = look.get((one.variant, one.source.label))
        colour = at.colour if at else ink_of(axes)
        axes.plot(
            [places[row.size] for row in rows],
            times,
            color=colour,
            marker=at.mark if at else ".",
            markersize=5,
            linewidth=1.6 if at else 1,
            linestyle=at.dashes if at else "-",
        )
        ends.setdefault(
            one.variant,
            EndLabel(
                x=places[rows[-1].size],
                y=times[-1],
                name=one.variant,
                figure=f"{number(times[-1], 1 if times[-1] < EXACT else 0)} times",
                colour=colour,
            ),
        )
    log_ticks(axes, "y")
    axes.set_ylabel("speed-up")
    label_ends(axes, list(ends.values()))
