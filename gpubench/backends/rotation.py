"""Operand sets: how many make a cache cold, and in which order launches rotate through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from gpubench.model import Problem

CACHES_TO_OUTGROW = 2
"""Operand sets together exceed this many last-level caches, so each is evicted before its reuse.

On an H200 one is enough (benchmarks/cold_sets.py): all of a set's bytes come from DRAM again."""

MAX_LAUNCHES = 256
"""Launches in a sample: enough for 100 µs of the shortest kernels, few enough for launch queues."""


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
    enough = -(-CACHES_TO_OUTGROW * cache_bytes // problem.bytes)
    # One more set than fill the caches: all the others are used before a set is used again.
    count = enough + 1 if enough > 1 else 1
    return SetPolicy(count=min(count, max_sets), flush=count > max_sets)


class Rotation:
    """The order in which launches use the sets: one rotation for all kernels on the same operands.

    If each kernel started with the first set, it would find in the cache what the kernel before it
    used last, unless that one went through all sets.
    """

    def __init__(self, count: int) -> None:
        self.order: Iterator[int] = cycle(range(count))
        """The indices of the sets, endlessly."""

        self._count = count
        self._untouched = 0

    def take(self, launches: int, flush: Callable[[], None] | None = None) -> list[int]:
        """The next sets; calls `flush` first unless none of them was used since the last flush."""
        if flush and self._untouched < launches:
            flush()
            self._untouched = self._count
        self._untouched -= launches
        return list(islice(self.order, launches))

    def used_out_of_order(self) -> None:
        """Note that a set was used which `take` did not give."""
        self._untouched = 0


@dataclass(frozen=True, kw_only=True)
class OperandSets:
    """A problem's arrays on a device."""

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


def first_rows(arrays: Sequence[Any], problem: Problem) -> tuple[Any, ...]:
    """Views of the arrays of a problem with more rows: the part that `problem` needs."""
    shapes = (*problem.input_shapes, problem.output_shape)
    return tuple(array[: shape[0]] for array, shape in zip(arrays, shapes, strict=True))
