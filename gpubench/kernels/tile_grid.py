"""Tiles given by several numbers, each from a list of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product

from gpubench.model import Tile, TileSpace

THREADS = (32, 64, 128, 256, 512, 1024)
"""In a block: whole warps, and halves all the way down for trees."""

SLAB_ROWS = (32, 64, 128, 256, 512, 1024)
"""Rows whose sums one block computes, where rows are shared out over blocks."""


def tile_grid(
    axes: Mapping[str, Sequence[int]],
    default: Sequence[str],
    refuse: Callable[[Tile], str | None] = lambda _tile: None,
) -> TileSpace:
    """The tiles `AxBxC` with a number for each axis.

    `axes` names each number and lists what it may be; `refuse` says why not all combinations may;
    `default` are tiles as `--tiles` takes them.
    """
    names = "x".join(axes)

    def why_not(tile: Tile) -> str | None:
        if len(tile.block) != len(axes) or tile.thread or tile.stages != 1:
            return f"takes {names}, such as {default[0]}, not {tile}"
        for (name, known), number in zip(axes.items(), tile.block, strict=True):
            if number not in known:
                return f"takes {name} of {_listed(known)}, not {number}"
        return refuse(tile)

    tiles = map(Tile, product(*axes.values()))
    return TileSpace(
        refuse=why_not,
        default=tuple(map(Tile.parse, default)),
        legal=tuple(tile for tile in tiles if refuse(tile) is None),
        summary=", ".join(f"{name} {_listed(known)}" for name, known in axes.items()),
    )


def _listed(numbers: Sequence[int]) -> str:
    """`1..8` for consecutive numbers, `32..1024:x2` for doubling ones, others one by one."""
    first, last = numbers[0], numbers[-1]
    if list(numbers) == list(range(first, last + 1)):
        return f"{first}..{last}" if len(numbers) > 1 else str(first)
    if all(2 * one == other for one, other in pairwise(numbers)):
        return f"{first}..{last}:x2"
    return ", ".join(map(str, numbers))
