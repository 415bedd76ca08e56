"""Pictures of rows, by matplotlib. Their names alone stand here: a command line loads them."""

from enum import StrEnum


class Kind(StrEnum):
    """What a picture shows: `auto` what suits the rows, `published` what `reproduce` compares."""

    AUTO = "auto"
    TILES = "tiles"
    SIZES = "sizes"
    BLAS = "blas"
    ROOFLINE = "roofline"
    SPEEDUP = "speedup"
    PUBLISHED = "published"


class Theme(StrEnum):
    """Which page a picture is read on; `both` has grey lines and text, and no page of its own."""

    LIGHT = "light"
    DARK = "dark"
    BOTH = "both"
