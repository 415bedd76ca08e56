"""The kinds of pictures, which of them suits a file, and drawing one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib as mpl

from gpubench.errors import UsageError
from gpubench.plan.registry import unknown
from gpubench.view.pictures import blas, roofline, sizes, speedup, tiles
from gpubench.view.pictures.series import Source, edge_of, is_baseline
from gpubench.view.pictures.style import THEMES, Picture, settings

KINDS: dict[str, Callable[[Sequence[Source]], Picture]] = {
    "tiles": tiles.draw,
    "sizes": sizes.draw,
    "blas": blas.draw,
    "roofline": roofline.draw,
    "speedup": speedup.draw,
}
"""By the name that `--kind` takes."""

PUBLISHED = "published"
"""The kind that draws the comparison of `gpubench reproduce`, not rows."""

CURVE = 3
"""Points from which on a line says something."""


def draw(of: Sequence[Source], kind: str = "auto", *, theme: str = "light") -> Picture:
    """The picture. Raises UsageError if kind or theme are unknown, or the rows do not suffice."""
    kind = resolve(of, kind)
    with mpl.rc_context(settings(known_theme(theme))):
        return KINDS[kind](of)


def known_theme(theme: str) -> str:
    """The theme itself. Raises UsageError if there is none of that name."""
    if theme not in THEMES:
        raise UsageError(f"--theme: {unknown('theme', theme, THEMES)}")
    return theme


def resolve(of: Sequence[Source], kind: str) -> str:
    """The kind itself, for `auto` the one that suits. Raises UsageError if there is none."""
    if kind not in {"auto", *KINDS}:
        raise UsageError(f"--kind: {unknown('kind', kind, ('auto', *KINDS, PUBLISHED))}")
    if not of:
        raise UsageError("nothing to draw: no row has a time")
    return suitable(of) if kind == "auto" else kind


def suitable(of: Sequence[Source]) -> str:
    """The kind that shows what the rows vary: tiles, sizes, or only variants."""
    rows = [row for source in of for row in source.rows]
    if {"cpu", "cuda"} <= {row.backend for row in rows}:
        return "speedup" if any(row.variant == speedup.BASELINE for row in rows) else "sizes"
    sizes = len({(row.m, row.n, row.k) for row in rows})
    edges = len({edge_of(row) for row in rows} - {None})
    if max(sizes, edges) >= CURVE:
        return "sizes" if sizes >= edges else "tiles"
    if any(row.percent_of_blas for row in rows):
        return "blas"
    return "tiles" if any(row.tile for row in rows) else "sizes"


def fitting(of: Sequence[Source]) -> list[str]:
    """Every kind that the rows suffice for and that would show more than one figure."""
    rows = [row for source in of for row in source.rows]
    tests = {
        "tiles": len({row.tile for row in rows if row.tile}) >= CURVE,
        "sizes": len({(row.m, row.n, row.k) for row in rows}) >= CURVE,
        "blas": any(row.percent_of_blas and not is_baseline(row) for row in rows),
        "roofline": any(row.percent_of_peak for row in rows),
        "speedup": len({row.variant for row in rows if row.backend == "cuda"}) > 0
        and any(row.variant == speedup.BASELINE for row in rows),
    }
    return [kind for kind in KINDS if tests[kind]]
