"""Pictures of rows, by matplotlib. Their names alone stand here: a command line loads them."""

from enum import StrEnum


class Kind(StrEnum):
    """What a picture shows."""

    AUTO = "auto"
    """What suits the rows."""

    TILES = "tiles"
    SIZES = "sizes"
    BLAS = "blas"
    ROOFLINE = "roofline"
    SPEEDUP = "speedup"
    PUBLISHED = "published"
    """The comparison that `gpubench reproduce` writes, not rows."""


class Theme(StrEnum):
    """Which page a picture is read on."""

    LIGHT = "light"
    DARK = "dark"
    BOTH = "both"
    """Grey lines and text, without a page of their own."""
