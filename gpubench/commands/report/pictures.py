"""The page's pictures: SVG that stands in the HTML and takes its colours from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from gpubench.row import Row
from gpubench.view.pictures.files import svg
from gpubench.view.pictures.kinds import draw, fitting
from gpubench.view.pictures.series import sources
from gpubench.view.pictures.style import THEMES

CAPTIONS = {
    "tiles": "Time per launch against tile size, both axes logarithmic. The large mark is the best "
    "tile, a cross one whose kernel uses local memory, the band (often thinner than the line) the "
    "95 % interval.",
    "sizes": "Speed of each variant at its best tile against matrix size, with the theoretical "
    "peak and the BLAS.",
    "blas": "Speed of each variant at its best tile, in percent of the BLAS of the same device, at "
    "the largest size.",
    "roofline": "Speed over arithmetic intensity, counting the bytes that must move. No kernel can "
    "stand above the roof; how far below it stands is what tuning may gain.",
    "speedup": "How many times faster than the naive loop on one CPU core. The CPU's own variants "
    "are grey.",
}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture in the page."""

    svg: Markup
    caption: str


def pictures_of(
    files: Sequence[tuple[Path, Sequence[Row]]], copy_gbytes_per_s: float | None
) -> list[Picture]:
    """Every kind that the rows suffice for.

    Files of different devices or versions are overlaid. Files that agree in both would only repeat
    each other's lines: each is drawn on its own.
    """
    together = sources(files, copy_gbytes_per_s)
    owners = [(one.rows[0].device, one.rows[0].gpubench) for one in together]
    groups = [("", together)]
    if len(set(owners)) < len(owners):
        groups = [(path.name, sources([(path, rows)], copy_gbytes_per_s)) for path, rows in files]
    pictures: list[Picture] = []
    for name, of in groups:
        for kind in fitting(of):
            caption = f"{name}: {CAPTIONS[kind]}" if name else CAPTIONS[kind]
            drawing = svg(draw(of, kind, theme="both"))
            pictures.append(
                Picture(svg=inline(drawing, f"p{len(pictures)}", caption), caption=caption)
            )
    return pictures


def inline(drawing: str, prefix: str, label: str) -> Markup:
    """A whole SVG file as an element of a page.

    The ink becomes the page's own colour; ids are prefixed, as pictures must not share them.
    """
    body = drawing[drawing.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{prefix}-", body)
    body = re.sub(r"<[^>]*>", lambda tag: tag[0].replace(THEMES["both"][0], "currentColor"), body)
    head = f'<svg role="img" aria-label="{escape(label)}"'
    return Markup(body.replace("<svg", head, 1))  # noqa: S704 - matplotlib escapes what it writes
