"""One thing to measure, and the conditions it is measured under. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpubench.model.problem import Problem
from gpubench.model.tile import Tile
from gpubench.model.variant import Variant


class Cache(StrEnum):
    """What the caches hold when a launch starts."""

    COLD = "cold"
    HOT = "hot"


class Scope(StrEnum):
    """What the clock sees: the kernel alone, or allocation and copies too."""

    KERNEL = "kernel"
    END_TO_END = "end-to-end"


class Fill(StrEnum):
    """What operands hold."""

    UNIFORM = "uniform"
    """Drawn from [−1, 1], integers from [−1000, 1000]."""

    INDEX = "index"
    """Element i of the first operand is i, of the second 2·i, and so on; integers wrap."""


class Timer(StrEnum):
    """Which clock: events (time per launch in a stream), CUPTI (execution), or the host's."""

    EVENTS = "events"
    CUPTI = "cupti"
    HOST = "host"


class Status(StrEnum):
    """How a point ended; each but `ok` comes with a reason."""

    OK = "ok"
    SKIPPED = "skipped"
    WRONG = "wrong"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One thing to measure."""

    variant: Variant
    tile: Tile | None
    problem: Problem
    cache: Cache
    scope: Scope
    timer: Timer

    @property
    def label(self) -> str:
        """What a person calls it: `shared_tile 16 at 1024 float32`."""
        tile = f" {self.tile}" if self.tile else ""
        return f"{self.variant.name}{tile} at {self.problem.size} {self.problem.dtype}"
