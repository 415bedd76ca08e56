"""The kinds of pictures, which of them suits a file, and drawing one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpubench.errors import UsageError
from gpubench.plan.registry import unknown
from gpubench.view.pictures import Kind, Theme
from gpubench.view.pictures.best import (
    CPU_BASELINE,
    draw_blas,
    draw_roofline,
    draw_sizes,
    draw_speedup,
)
from gpubench.view.pictures.series import Source, edge_of, is_baseline
from gpubench.view.pictures.style import Picture
from gpubench.view.pictures.tiles import draw as draw_tiles

KINDS: dict[Kind, Callable[[Sequence[Source], Theme], Picture]] = {
    Kind.TILES: draw_tiles,
    Kind.SIZES: draw_sizes,
    Kind.BLAS: draw_blas,
    Kind.ROOFLINE: draw_roofline,
    Kind.SPEEDUP: draw_speedup,
}
"""The kinds that draw rows."""

CURVE = 3
"""Points from which on a line says something."""


def draw(of: Sequence[Source], kind: str = Kind.AUTO, *, theme: str = Theme.LIGHT) -> Picture:
    """The picture. Raises UsageError if kind or theme are unknown, or the rows do not suffice."""
    if theme not in list(Theme):
        raise UsageError(f"--theme: {unknown('theme', theme, list(Theme))}")
    return KINDS[resolve(of, kind)](of, Theme(theme))


def resolve(of: Sequence[Source], kind: str) -> Kind:
    """The kind itself, for `auto` the one that suits. Raises UsageError if there is none."""
    if kind != Kind.AUTO and kind not in KINDS:
        raise UsageError(f"--kind: {unknown('kind', kind, list(Kind))}")
    if not of:
        raise UsageError("nothing to draw: no row has a time")
    return suitable(of) if kind == Kind.AUTO else Kind(kind)


def suitable(of: Sequence[Source]) -> Kind:
    """The kind that shows what the rows vary: tiles, sizes, or only variants."""
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
        Kind.ROOFLINE: any(row.percent_of_peak for row in rows),
        Kind.SPEEDUP: len({row.backend for row in rows}) > 1
        and any(row.variant == CPU_BASELINE for row in rows),
    }
    return [kind for kind in KINDS if tests[kind]]
