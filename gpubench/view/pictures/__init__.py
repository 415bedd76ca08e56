"""Pictures of rows, by matplotlib. Their names alone stand here: a command line loads them."""

from __future__ import annotations

import os
from contextlib import chdir, suppress
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path


def load_matplotlib() -> None:
    """Load matplotlib with its own settings, whatever a matplotlibrc or MPLBACKEND says.

    For a command, which loads it once: it looks for a matplotlibrc in the current directory first,
    and one that is damaged is an exception. A notebook keeps its user's settings.
    """
    os.environ.pop("MPLBACKEND", None)
    found = find_spec("matplotlib")
    if found and found.origin:
        with suppress(OSError), chdir(Path(found.origin).with_name("mpl-data")):
            import_module("matplotlib")


class Kind(StrEnum):
    """What a picture shows: `auto` what suits the rows, `published` what `reproduce` compares."""

    AUTO = "auto"
    TILES = "tiles"
    SIZES = "sizes"
    BLAS = "blas"
    PEAK = "peak"
    PRECISIONS = "precisions"
    ROOFLINE = "roofline"
    SPEEDUP = "speedup"
    PUBLISHED = "published"


class Theme(StrEnum):
    """Which page a picture is read on; `both` has grey lines and text, and no page of its own."""

    LIGHT = "light"
    DARK = "dark"
    BOTH = "both"
