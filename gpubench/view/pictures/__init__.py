"""Draws pictures of measured rows. matplotlib is imported only when a picture is drawn."""

import os
from contextlib import chdir, suppress
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path


def load_matplotlib() -> None:
    """Load matplotlib with its own settings, regardless of a matplotlibrc or MPLBACKEND.

    Commands call this function, because matplotlib would read a matplotlibrc in the current
    directory, and raise an exception if that file is damaged. A notebook does not call this
    function, and keeps the settings of its user.
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
