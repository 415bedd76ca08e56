"""Operand sets: how many make a cache cold, how they differ, and in which order they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpubench.model import Problem

CACHES_TO_OUTGROW = 2
"""Operand sets together exceed this many last-level caches, so each is evicted before its reuse.

On an H200 one is enough (docs/decisions/0018): all of a set's bytes come from DRAM again."""

MAX_LAUNCHES = 256
"""Launches in a sample: enough for 100 µs of the shortest kernels, few enough for launch queues."""

FACTORS = ((1, 1), (-1, 2), (-1, -2), (1, -1))
"""What the two operands of a set are multiplied by, set after set.

Results of consecutive sets differ then, and by powers of two, so each follows exactly from another:
a workspace, a flag or a sum left over from the launch before shows.
"""

DOUBLED_BITS = 32
"""Operands of so many bits may be doubled; narrower ones have no range to spare, and change sign
only."""


@dataclass(frozen=True, kw_only=True)
class SetPolicy:
    """How one problem is kept cold, or hot."""

    count: int
    """Sets to rotate through."""

    flush: bool
    """Whether the sets fit into the cache together, so that it must be flushed between samples."""

    @property
    def max_launches(self) -> int:
        """Launches a sample may have before it would reuse a set, which is warm by then."""
        return min(self.count, MAX_LAUNCHES) if self.flush else MAX_LAUNCHES


def set_policy(problem: Problem, cache_bytes: int, *, cold: bool, max_sets: int) -> SetPolicy:
    """Sets of operands for a problem on a device with `cache_bytes` of last-level cache.

    Small problems would take more than `max_sets`; for those the cache is flushed instead.
    """
    if not cold:
        return SetPolicy(count=1, flush=False)
    # One more set than fill the caches: all the others are used before a set is used again. A
    # problem that fills them alone has two too: a launch would find the end of its own last run.
    count = -(-CACHES_TO_OUTGROW * cache_bytes // problem.bytes) + 1
    return SetPolicy(count=min(count, max_sets), flush=count > max_sets)


def operand_factors(problem: Problem, index: int) -> tuple[int, int]:
    """What the operands of a set are multiplied by; the first set's are as they were given."""
    a, b = FACTORS[index % len(FACTORS)]
    return (a, b) if problem.precision.bits >= DOUBLED_BITS else (a, b // abs(b))


def result_factor(problem: Problem, index: int) -> int:
    """What the result of a set is, exactly, in results of the first set."""
    a, b = operand_factors(problem, index)
    return int(a**problem.operation.uses_of_a * b)


class Rotation:
    """The order in which launches use the sets: one rotation for all kernels on the same operands.

    If each kernel started with the first set, it would find in the cache what the kernel before it
    used last, unless that one went through all sets.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._next = 0
        self._untouched = 0
        self.used = set(range(count))
        """Sets that launches wrote into; at first all, until someone renews the outputs."""

        self.zeroed = False
        """Whether outputs were renewed by zeros, for a kernel that reads them."""

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        index = self._next
        self._next = (index + 1) % self._count
        self.used.add(index)
        return index

    def take(self, launches: int, flush: Callable[[], None] | None = None) -> list[int]:
        """The next sets; calls `flush` first unless none of them was used since the last flush."""
        if flush and self._untouched < launches:
            flush()
            self._untouched = self._count
        self._untouched -= launches
        return [next(self) for _ in range(launches)]


@dataclass(frozen=True, kw_only=True)
class OperandSets:
    """A problem's arrays on a device."""

    problem: Problem
    given: tuple[Any, ...]
    """The inputs in host memory, where no kernel writes into them."""

    sets: tuple[tuple[Any, ...], ...]
    """Each set: the inputs, then the output."""

    policy: SetPolicy
    rotation: Rotation

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The first set's inputs."""
        return self.sets[0][:-1]

    @property
    def output(self) -> Any:
        """The first set's output."""
        return self.sets[0][-1]


def stacked(make: Callable[..., Any], count: int, problem: Problem) -> list[Any]:
    """For each operand and the result an array of `count` of them, one after the other in memory.

    `make` takes a shape and an element type; each matrix is row- or column-major as the problem is.
    """
    precision = problem.precision
    types = (*[precision.element] * len(problem.input_shapes), precision.result)
    return [
        make((count, *reversed(shape)), kind).swapaxes(1, -1)
        if by_columns
        else make((count, *shape), kind)
        for shape, kind, by_columns in zip(problem.shapes, types, problem.by_columns, strict=True)
    ]


def first_rows(arrays: Sequence[Any], problem: Problem) -> tuple[Any, ...]:
    """Views of the arrays of a problem with more rows: the part that `problem` needs."""
    shapes = (*problem.input_shapes, problem.output_shape)
    return tuple(array[: shape[0]] for array, shape in zip(arrays, shapes, strict=True))
