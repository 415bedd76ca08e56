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
    """The kind of a picture. For `auto`, the columns in which rows differ determine it."""

    AUTO = "auto"
    TILES = "tiles"
    SIZES = "sizes"
    BLAS = "blas"
    ROOFLINE = "roofline"
    BITS = "bits"


class Theme(StrEnum):
    """The colour of the page that shows a picture.

    A picture for `both` suits light and dark pages, because the text is grey and there is no
    background.
    """

    LIGHT = "light"
    BOTH = "both"
