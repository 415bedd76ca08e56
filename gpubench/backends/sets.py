"""How many sets of operands make a cache cold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from gpubench.model import Problem

CACHES_TO_OUTGROW = 2
"""Operand sets together exceed this many last-level caches, so a set is evicted before its turn."""

MOST_LAUNCHES = 256
"""Launches in a sample: enough for 100 µs of the shortest kernels, few enough for launch queues."""


@dataclass(frozen=True, kw_only=True)
class SetPolicy:
    """How one problem is kept cold, or hot."""

    count: int
    """Sets to rotate through."""

    flush: bool
    """Whether the sets fit into the cache together, so that it must be flushed between samples."""

    def rotation(self) -> Iterator[int]:
        """The next set, over and over: one rotation for all kernels on the same operands.

        Were each kernel to begin with the first set, it would find in the cache what the one before
        it used last, unless that one went through all sets.
        """
        return cycle(range(self.count))

    @property
    def most_launches(self) -> int:
        """Launches a sample may have before it meets a set that is warm by now."""
        return min(self.count, MOST_LAUNCHES) if self.flush else MOST_LAUNCHES


def set_policy(problem: Problem, cache_bytes: int, *, cold: bool, most_sets: int) -> SetPolicy:
    """Sets of operands for a problem on a device with `cache_bytes` of last-level cache.

    Small problems would take more than `most_sets`; for those the cache is flushed instead.
    """
    if not cold:
        return SetPolicy(count=1, flush=False)
    enough = -(-CACHES_TO_OUTGROW * cache_bytes // problem.bytes)
    # One more set than fill the caches: the next one's turn comes after all the others'.
    count = enough + 1 if enough > 1 else 1
    return SetPolicy(count=min(count, most_sets), flush=count > most_sets)


def cut(arrays: Sequence[Any], problem: Problem) -> tuple[Any, ...]:
    """Inputs and output of a problem with more rows, without copying: their first rows."""
    shapes = (*problem.input_shapes, problem.output_shape)
    return tuple(array[: shape[0]] for array, shape in zip(arrays, shapes, strict=True))
