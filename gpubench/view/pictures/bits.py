"""Draws speed against the number of exact bits of the results.

The picture shows how much speed an exact bit costs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from matplotlib.axes import Axes

from gpubench.grouping import grouped
from gpubench.model import PRECISIONS
from gpubench.plan.registry import libraries
from gpubench.results.row import Row
from gpubench.view.pictures import style
from gpubench.view.pictures.series import Panel, Series, Source, extent, panels
from gpubench.view.row_tables import best_of_each

HEIGHT_IN = 4.4  # height of the axes in inches

RIGHT_POINTS = 5  # distance of a precision's name to the right of its marker, in 1/72 inch
ABOVE_POINTS = 4  # distance of the name above the marker, in 1/72 inch
LINE_POINTS = 11  # height of a line of names, in 1/72 inch

NEAR_BITS = 8.0
"""Two points are near if they differ by less than this number of bits, and if their speeds differ
by a factor below `NEAR_RATIO`. Their names must not overlap."""

NEAR_RATIO = 1.4


def bits_panels(group: Sequence[Source]) -> list[Panel]:
    """Return a panel for each operation and its conditions, at the size with the most precisions.

    Rows of all layouts are in one panel, because 8-bit operands have a different layout than
    others.

    A row of a library is left out if the library computes in another precision than the row states.
    The point would belong to the other precision.
    """
    sized: list[Source] = []
    for source in group:
        rows = [row for row in source.rows if row.error_rms_bits and row.gflops and _is_own(row)]
        of_ops = grouped(rows, lambda row: row.op).values()
        if chosen := tuple(chain.from_iterable(map(_of_one_size, of_ops))):
            sized.append(replace(source, rows=chosen))
    devices = {row.device for source in sized for row in source.rows}
    where = f" on {devices.pop()}" if len(devices) == 1 else ""

    def title(row: Row) -> str:
        special = replace(row, layout="").special
        return f"{row.op} {row.size.replace('x', '×')}{where}, {row.conditions}{special}"

    every = panels(sized, title)
    return [panel for panel in every if len({row.compute_mode for row in panel.rows}) > 1]


def _of_one_size(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of an operation at the size with the most precisions."""
    modes = {(row.size, row.compute_mode): extent(row) for row in rows}
    counts = Counter(size for size, _ in modes)
    extents = {size: edge for (size, _), edge in modes.items()}
    chosen = max(counts, key=lambda size: (counts[size], extents[size]))
    return [row for row in rows if row.size == chosen]


def draw_bits(panel: Panel, looks: style.Looks, axes: Axes) -> float:
    """Draw, for each precision, the fastest row of all kernels and the fastest row of each library.

    Return the height of the axes in inches.
    """
    of_libraries, lines = libraries(), []
    by_line = grouped(
        panel.series,
        lambda line: line.name if line.variant in of_libraries else line.source.named("kernels"),
    )
    for name, series in by_line.items():
        rows = [row for line in series for row in line.rows]
        best = list(best_of_each(rows, lambda row: row.compute_mode).values())
        points = list(map(_point, best))
        look = _look(series[0], looks) | {"linestyle": "", "label": style.label(name)}
        lines += axes.plot(*zip(*points, strict=True), **look)
        style.ring(axes, best, points)
    _name_points(axes, panel.rows)
    axes.margins(x=0.12, y=0.15)
    axes.set_xlabel("exact bits of a result: −log₂ of the rms error, on the judge's scale")
    style.log_axis(axes, "y")
    style.y_title(axes, "GFLOP/s")
    style.legend(axes, lines)
    return HEIGHT_IN


def _point(row: Row) -> tuple[float, float]:
    return row.error_rms_bits or 0.0, row.gflops or 0.0


def _name_points(axes: Axes, rows: Sequence[Row]) -> None:
    """Write the name of each precision beside its fastest point.

    A name extends to the right. So the name is below the point if the next near point is higher, or
    if the names of near points on the left are all above. Other names are above their points.
    """
    fastest = best_of_each(rows, lambda row: row.compute_mode)
    points = sorted((*_point(row), row.compute_mode) for row in fastest.values())
    lines: dict[tuple[float, float, str], int] = {}  # 0 is just above a point, −1 just below
    for index, point in enumerate(points):
        on_left = [lines[each] for each in points[:index] if _are_near(each, point)]
        is_higher = [each[1] > point[1] for each in points[index + 1 :] if _are_near(point, each)]
        is_below = is_higher[0] if is_higher else bool(on_left) and min(on_left) >= 0
        line = min([0, *on_left]) - 1 if is_below else max([-1, *on_left]) + 1
        lines[point] = line
        offset = LINE_POINTS * line + (ABOVE_POINTS if line >= 0 else 0)
        axes.annotate(
            point[2],
            point[:2],
            (RIGHT_POINTS, offset),
            textcoords="offset points",
            fontsize="small",
        )


def _are_near(point: tuple[float, float, str], right: tuple[float, float, str]) -> bool:
    """Return whether two points, the left point first, are near each other."""
    return right[0] - point[0] < NEAR_BITS and 1 / NEAR_RATIO < right[1] / point[1] < NEAR_RATIO


def _look(series: Series, looks: style.Looks) -> dict[str, Any]:
    """Return the options of a marker. Libraries have looks of their own, and kernels share one."""
    if series.variant in libraries() and series.variant in looks:
        return looks[series.variant].options
    return {"color": style.COLOURS[0], "marker": "o"}


def _is_own(row: Row) -> bool:
    """Return whether the kernel or library of a row computes in the row's precision."""
    precision = PRECISIONS.get(row.compute_mode)  # files of newer versions have other precisions
    return not (precision and precision.in_blas and style.is_library(row.variant))
