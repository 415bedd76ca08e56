"""One thing to measure, and the conditions it is measured under. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gpubench.model.config import Config
from gpubench.model.problem import Problem
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
    """Drawn from [−1, 1], integers from their whole range."""

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
    ELIMINATED = "eliminated"
    """`tune` has shown that it is not the best; the times it had until then are kept."""


class State(StrEnum):
    """What the clock and the power limit have been through when a launch starts."""

    BURST = "burst"
    """Samples follow a short warm-up: the clock is the highest that the device allows."""

    SUSTAINED = "sustained"
    """The kernel has run for a second without a pause: the clock is what power and heat allow."""


class PointKey(NamedTuple):
    """What identifies a point within a file and across files: the key columns of the CSV."""

    op: str
    variant: str
    backend: str
    tile: str
    dtype: str
    compute_mode: str
    layout: str
    m: int
    n: int
    k: int
    operands: str
    cache: str
    state: str
    scope: str
    timer: str


@dataclass(frozen=True, kw_only=True)
class Point:
    """One thing to measure."""

    variant: Variant
    tile: Config | None
    problem: Problem
    operands: Fill = Fill.UNIFORM
    cache: Cache
    state: State = State.BURST
    scope: Scope
    timer: Timer

    @property
    def key(self) -> PointKey:
        """What identifies the point."""
        problem, variant = self.problem, self.variant
        return PointKey(
            op=problem.op,
            variant=variant.name,
            backend=variant.backend,
            tile=str(self.tile or ""),
            dtype=problem.precision.element,
            compute_mode=problem.dtype,
            layout=problem.layout,
            m=problem.m,
            n=problem.n,
            k=problem.k,
            operands=str(self.operands),
            cache=str(self.cache),
            state=str(self.state),
            scope=str(self.scope),
            timer=str(self.timer),
        )

    @property
    def problem_key(self) -> PointKey:
        """The key without variant and tile: points that agree in it may be compared."""
        return self.key._replace(variant="", tile="")

    @property
    def label(self) -> str:
        """What a person calls it: `shared_tile 16 at 1024 float32`."""
        tile = f" {self.tile}" if self.tile else ""
        return f"{self.variant.name}{tile} at {self.problem.size} {self.problem.dtype}"
