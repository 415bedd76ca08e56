"""Writing a picture: SVG that is the same each time, PNG and PDF."""

from __future__ import annotations

import io
import re
from pathlib import Path

import matplotlib as mpl

from gpubench.errors import UsageError
from gpubench.output import require_free, write_whole
from gpubench.view.pictures.style import Picture

FORMATS = (".svg", ".png", ".pdf")

FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""What a browser takes: text stays text, and these are about equally wide."""

DPI = 192
"""Twice a screen's, so that a PNG as wide as the README is sharp."""


def check(path: Path, *, force: bool) -> None:
    """Raises UsageError if the picture cannot or must not be written there."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--output: '{path}' ends in none of {', '.join(FORMATS)}")
    require_free(path, overwrite=force)


def save(picture: Picture, path: Path, description: str = "") -> None:
    """Write the picture in the format that the name's ending says, or leave what was there.

    `description` goes into an SVG: what it was made from. Raises UsageError if it cannot write.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind == "svg":
        content = svg(picture, description).encode()
    else:
        target = io.BytesIO()
        dated = {"Software": None} if kind == "png" else {"CreationDate": None}
        picture.savefig(target, format=kind, dpi=DPI, metadata=dated)
        content = target.getvalue()
    write_whole(path, lambda file: file.write(content))


def svg(picture: Picture, description: str = "") -> str:
    """The picture as SVG: the same text for the same picture, on any day."""
    target = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gpubench"}):
        metadata = {"Date": None, "Description": description or None, "Creator": None}
        picture.savefig(target, format="svg", metadata=metadata)
    text = target.getvalue().replace("'DejaVu Sans'", FONTS)
    text = re.sub(r"<[^>]*>", _shorter, text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _shorter(tag: re.Match[str]) -> str:
    """A tag with its coordinates to a thousandth of a point; what is written stays as it is."""
    return re.sub(r"(\d\.\d{3})\d+", r"\1", tag[0])
