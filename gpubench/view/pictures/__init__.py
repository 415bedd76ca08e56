"""Draws pictures of rows by matplotlib, which it imports only when it draws."""

import os
from contextlib import chdir, suppress
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path


def load_matplotlib() -> None:
    """Load matplotlib with its own settings, regardless of a matplotlibrc or MPLBACKEND.

    Commands call this, as matplotlib reads a matplotlibrc of the current directory, and raises an
    exception if it is damaged. A notebook keeps its user's settings.
    """
    os.environ.pop("MPLBACKEND", None)
    package = find_spec("matplotlib")
    if package and package.origin:
        with suppress(OSError), chdir(Path(package.origin).with_name("mpl-data")):
            import_module("matplotlib")


class Kind(StrEnum):
    """The kind of a picture. `auto` chooses a kind by the columns in which the rows differ."""

    AUTO = "auto"
    TILES = "tiles"
    SIZES = "sizes"
    BLAS = "blas"
    ROOFLINE = "roofline"
    BITS = "bits"


class Theme(StrEnum):
    """The page that a picture is for.

    `both` is for light and dark pages: grey text, no background.
    """

    LIGHT = "light"
    BOTH = "both"
