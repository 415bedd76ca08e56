"""How many sets of operands make a cache cold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from gpubench.model import Problem

CACHES_TO_OUTGROW = 2
"""Operand sets together exceed this many last-level caches, so a set is evicted before its turn."""

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
        """Launches a sample may have before it meets a set that is warm by now."""
        return min(self.count, MAX_LAUNCHES) if self.flush else MAX_LAUNCHES


class Rotation:
    """Whose turn it is among the sets: one rotation for all kernels on the same operands.

    Were each kernel to begin with the first set, it would find in the cache what the one before it
    used last, unless that one went through all sets.
    """

    def __init__(self, count: int) -> None:
        self.turns: Iterator[int] = cycle(range(count))
        """The numbers of the sets, over and over."""

        self._count = count
        self._untouched = 0

    def take(self, launches: int, flush: Callable[[], None] | None = None) -> list[int]:
        """The next sets; `flush` is called first unless none of them was used since it was."""
        if flush and self._untouched < launches:
            flush()
            self._untouched = self._count
        self._untouched -= launches
        return list(islice(self.turns, launches))

    def used_out_of_turn(self) -> None:
        """A set was used that `take` did not give."""
        self._untouched = 0


def set_policy(problem: Problem, cache_bytes: int, *, cold: bool, max_sets: int) -> SetPolicy:
    """Sets of operands for a problem on a device with `cache_bytes` of last-level cache.

    Small problems would take more than `max_sets`; for those the cache is flushed instead.
    """
    if not cold:
        return SetPolicy(count=1, flush=False)
    enough = -(-CACHES_TO_OUTGROW * cache_bytes // problem.bytes)
    # One more set than fill the caches: the next one's turn comes after all the others'.
    count = enough + 1 if enough > 1 else 1
    return SetPolicy(count=min(count, max_sets), flush=count > max_sets)


def cut(arrays: Sequence[Any], problem: Problem) -> tuple[Any, ...]:
    """Inputs and output of a problem with more rows, without copying: their first rows."""
    shapes = (*problem.input_shapes, problem.output_shape)
    return tuple(array[: shape[0]] for array, shape in zip(arrays, shapes, strict=True))
