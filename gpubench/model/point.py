"""Defines a point to measure, and the conditions of its measurement."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gpubench.model.config import Config
from gpubench.model.problem import Problem
from gpubench.model.variant import Variant


class Cache(StrEnum):
    """Whether the caches hold the operands when a launch starts."""

    COLD = "cold"
    HOT = "hot"


class Launches(StrEnum):
    """When a timed launch may begin, relative to the previous launch."""

    ALONE = "alone"
    """A launch begins when the previous launch has ended, as in a hardware profiler."""

    OVERLAPPED = "overlapped"
    """A launch begins as early as the kernel allows. With programmatic dependent launch, the
    launch overlaps the end of the previous launch."""

    GRAPH = "graph"
    """The launches begin as with `alone`, and are nodes of a CUDA graph that is replayed."""

    GRAPH_OVERLAPPED = "graph_overlapped"
    """The launches begin as with `overlapped`, and are nodes of a CUDA graph that is replayed."""

    WAITED = "waited"
    """A launch begins when the host has waited for the previous launch. The time of a launch
    includes the call and the wait."""

    @property
    def overlap(self) -> bool:
        """Whether a launch may begin before the previous launch has ended."""
        return self in {Launches.OVERLAPPED, Launches.GRAPH_OVERLAPPED}

    @property
    def in_graph(self) -> bool:
        """Whether the launches are nodes of a graph."""
        return self in {Launches.GRAPH, Launches.GRAPH_OVERLAPPED}


class Scope(StrEnum):
    """Whether only the kernel is timed, or also the allocation of memory and the copies."""

    KERNEL = "kernel"
    END_TO_END = "end-to-end"


class Fill(StrEnum):
    """The values of the operands, which decide how many bits switch and how much power is used."""

    UNIFORM = "uniform"
    """Random values between −1 and 1. Integers come from the whole range of their type."""

    INDEX = "index"
    """The element with index i has the value i in the first operand, 2·i in the second operand, and
    so on. Integers wrap around."""

    POSITIVE = "positive"
    """Random values between 0 and 1. Integers come from the range between 0 and the largest integer
    of their type. Large sums have large errors."""

    NORMAL = "normal"
    """Random values with mean 0 and standard deviation 1. The standard deviation of integers is a
    quarter of the largest integer."""

    INTEGERS = "integers"
    """Random whole numbers from −4 to 4."""

    ZEROS = "zeros"
    ONES = "ones"
    LOW_ENTROPY = "low-entropy"
    """Uniform random values that keep only 4 bits of mantissa after the leading bit. Integers keep
    only their upper 4 bits."""

    @property
    def reveals_errors(self) -> bool:
        """Whether the result shows a lost product, or a forbidden rounding of an operand.

        Errors do not show if the mantissas are so short that they survive rounding, or if all
        products are equal.
        """
        return self == Fill.INDEX or self.has_all_bits

    @property
    def has_all_bits(self) -> bool:
        """Whether the values are random in all bits of their type."""
        return self in {Fill.UNIFORM, Fill.NORMAL}

    @property
    def is_random(self) -> bool:
        """Whether the values depend on a seed, so that no kernel can know them in advance."""
        return self not in {Fill.INDEX, Fill.ZEROS, Fill.ONES}


class Timer(StrEnum):
    """The clock that times the launches.

    Events measure the time per launch in a stream, CUPTI measures the execution of kernels, and
    `host` is the host's clock.
    """

    EVENTS = "events"
    CUPTI = "cupti"
    HOST = "host"
    OUTSIDE = "outside"
    """The clock of another process, which does not run users' functions (`engine.outside.wall`)."""


CPU_TIMERS = frozenset({Timer.HOST, Timer.OUTSIDE})
"""The timers of points that run on a CPU."""


class Status(StrEnum):
    """How a point ended. Every status except `ok` has a reason."""

    OK = "ok"
    SKIPPED = "skipped"
    WRONG = "wrong"
    ERROR = "error"
    ELIMINATED = "eliminated"
    """`tune` showed that the configuration is not the fastest. The times before the elimination are
    kept."""


class State(StrEnum):
    """The load on the device before a launch. The clock depends on this load."""

    BURST = "burst"
    """Samples follow a short warm-up. The clock is the highest that the device allows."""

    SUSTAINED = "sustained"
    """The kernel has run for a second without a pause. The clock is the highest that power and heat
    allow."""


class PointKey(NamedTuple):
    """The values of the CSV's key columns, which identify a point in all files."""

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
    launches: str
    state: str
    scope: str
    timer: str
    extents: str = ""
    """The extents beyond M, N and K, such as `batch=8`."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A variant, its tile and a problem, with the conditions under which they are measured."""

    variant: Variant
    tile: Config | None
    """The variant's tile. None if the variant has no tile to choose."""

    problem: Problem
    operands: Fill = Fill.UNIFORM
    cache: Cache
    launches: Launches = Launches.ALONE
    state: State = State.BURST
    scope: Scope
    timer: Timer

    @property
    def key(self) -> PointKey:
        """The values of the key columns, which identify the point."""
        problem, variant = self.problem, self.variant
        return PointKey(
            op=problem.op,
            variant=variant.name,
            backend=variant.backend,
            tile="" if self.tile is None else str(self.tile),
            dtype=problem.precision.element,
            compute_mode=problem.dtype,
            layout=problem.layout,
            m=problem.m,
            n=problem.n,
            k=problem.k,
            operands=str(self.operands),
            cache=str(self.cache),
            launches=str(self.launches),
            state=str(self.state),
            scope=str(self.scope),
            timer=str(self.timer),
            extents=problem.operation.further_text(problem.further),
        )

    @property
    def problem_key(self) -> PointKey:
        """The point's key without variant and tile. Points with an equal key may be compared."""
        return self.key._replace(variant="", tile="")

    @property
    def label(self) -> str:
        """A text that names the point, such as `shared_tile 16 at 1024 float32`."""
        tile = "" if self.tile is None else f" {self.tile}"
        return f"{self.variant.name}{tile} at {self.problem.size} {self.problem.dtype}"
