"""Tiles: how a problem is cut, and which cuts a variant can take. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_TILE = re.compile(
    r"(?P<block>\d+(x\d+){0,2})(/(?P<thread>\d+x\d+))?(/s(?P<stages>\d+))?(/k(?P<splits>\d+))?",
    re.ASCII,
)


@dataclass(frozen=True, order=True)
class Tile:
    """A tile: a single edge (`16`), or a block tile with its thread tile and stages.

    `128x128x8/8x8/s3` is a 128×128 tile of C computed in steps of 8 along K, 8×8 elements a
    thread, three stages in flight. `/k4` at the end: four blocks share K.
    """

    block: tuple[int, ...]
    thread: tuple[int, ...] = ()
    stages: int = 1
    splits: int = 1

    @property
    def edge(self) -> int:
        """The edge of a tile given by one number."""
        (edge,) = self.block
        return edge

    @property
    def numbers(self) -> tuple[int, ...]:
        """All its numbers in order: the template arguments after the scalar type."""
        return (
            *self.block,
            *self.thread,
            *((self.stages,) if self.stages > 1 else ()),
            *((self.splits,) if self.splits > 1 else ()),
        )

    def __str__(self) -> str:
        text = "x".join(map(str, self.block))
        if self.thread:
            text += "/" + "x".join(map(str, self.thread))
        if self.stages > 1:
            text += f"/s{self.stages}"
        if self.splits > 1:
            text += f"/k{self.splits}"
        return text

    @classmethod
    def parse(cls, text: str) -> Tile:
        """Read what `str(tile)` wrote; ValueError for anything else."""
        match = _TILE.fullmatch(text)
        if not match:
            raise ValueError(f"'{text}' is not a tile; write 16, 128x128x8 or 128x128x8/8x8/s3")
        thread = match["thread"]
        return cls(
            block=tuple(map(int, match["block"].split("x"))),
            thread=tuple(map(int, thread.split("x"))) if thread else (),
            stages=int(match["stages"] or 1),
            splits=int(match["splits"] or 1),
        )


@dataclass(frozen=True, kw_only=True)
class TileSpace:
    """The tiles a variant can take."""

    refuse: Callable[[Tile], str | None]
    """Why the variant cannot take a tile, or None if it can."""

    default: tuple[Tile, ...]
    """What is swept when the user names no tiles."""

    legal: tuple[Tile, ...]
    """Every legal tile, for `variants` and for the tests that compile them all."""

    summary: str = ""
    """The legal tiles in words, where a list of them would be long."""

    complete: Callable[[Tile], Tile] = lambda tile: tile
    """The tile meant by one that leaves numbers out, as `128x128x8` does."""

    @property
    def kind(self) -> int:
        """How many numbers its blocks have: 1 for edges, 3 for block tiles."""
        return len(self.default[0].block)


def edges(low: int, high: int, *, because: str) -> TileSpace:
    """Tiles given by one edge from `low` to `high`; `because` says why not more."""

    def refuse(tile: Tile) -> str | None:
        if len(tile.block) != 1 or tile.thread or tile.stages != 1:
            return f"takes a single edge, not {tile}"
        if not low <= tile.edge <= high:
            return f"takes edges {low} to {high}: {because}"
        return None

    legal = tuple(Tile((edge,)) for edge in range(low, high + 1))
    default = tuple(Tile((edge,)) for edge in (1, 2, 4, 8, 16, 32) if low <= edge <= high)
    return TileSpace(refuse=refuse, default=default, legal=legal)
