"""Spaces of tiles `AxBxC`: every combination of the numbers listed for each axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product

from gpubench.model import Tile, TileSpace

THREADS = (32, 64, 128, 256, 512, 1024)
"""Threads in a block: whole warps, and a power of two for reductions in a tree."""

SLAB_ROWS = (32, 64, 128, 256, 512, 1024)
"""Rows that one block adds up, where several blocks add up the rows of a column."""


def tile_grid(
    axes: Mapping[str, Sequence[int]],
    default: Sequence[str],
    refuse: Callable[[Tile], str | None] = lambda _tile: None,
) -> TileSpace:
    """The tiles `AxBxC` with a number for each axis.

    `axes` gives each axis' name and legal numbers; `refuse` gives the reason why a combination is
    illegal, or None; `default` are tiles as `--tiles` takes them.
    """
    names = "x".join(axes)

    def why_not(tile: Tile) -> str | None:
        if len(tile.block) != len(axes) or tile.thread or tile.stages != 1:
            return f"takes {names}, such as {default[0]}, not {tile}"
        for (name, legal), number in zip(axes.items(), tile.block, strict=True):
            if number not in legal:
                return f"takes {name} of {_listed(legal)}, not {number}"
        return refuse(tile)

    tiles = map(Tile, product(*axes.values()))
    return TileSpace(
        refuse=why_not,
        default=tuple(map(Tile.parse, default)),
        legal=tuple(tile for tile in tiles if refuse(tile) is None),
        summary=", ".join(f"{name} {_listed(legal)}" for name, legal in axes.items()),
    )


def _listed(numbers: Sequence[int]) -> str:
    """`1..8` for consecutive numbers, `32..1024:x2` for powers, others separated by commas."""
    first, last = numbers[0], numbers[-1]
    if list(numbers) == list(range(first, last + 1)):
        return f"{first}..{last}" if len(numbers) > 1 else str(first)
    if all(2 * number == doubled for number, doubled in pairwise(numbers)):
        return f"{first}..{last}:x2"
    return ", ".join(map(str, numbers))
