"""Spaces of tiles `AxBxC`: every combination of the numbers of each axis."""

from collections.abc import Callable, Mapping, Sequence

from gpubench.model import Config, Space

THREADS = (32, 64, 128, 256, 512, 1024)
"""Threads of a block: whole warps, and a power of two for reductions in a tree."""

SLAB_ROWS = (32, 64, 128, 256, 512, 1024)
"""Rows that one block adds up, if several blocks add up a column."""


def tile_grid(
    axes: Mapping[str, Sequence[int]],
    default: tuple[str, ...],
    refuse: Callable[[Config], str | None] | None = None,
) -> Space:
    """Return the space of tiles `AxBxC` with a number for each axis.

    `refuse` returns why a combination is illegal, or None.
    """
    return Space(axes=axes, block=tuple(axes), default=default, constraint=refuse)
