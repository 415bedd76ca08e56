"""Decides how many sets of operands keep a cache cold, what the sets contain, and their order."""

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from gpubench.errors import DoesNotFitError
from gpubench.model import Point, Problem, Scope, bytes_of_element

CACHES_TO_OUTGROW = 2
"""The sets together have the size of the last-level cache times this factor, so that each set is
evicted before it is used again.

On an H200 a factor of 1 is enough (docs/decisions/0018): all bytes of a set come from DRAM
again."""

MAX_LAUNCHES = 256
"""Maximum number of launches in a sample. With this number, a sample of the shortest kernels takes
100 µs, and a launch queue has room for all launches."""

FACTORS = ((1, 1), (-1, 2), (-1, -2), (1, -1))
"""Factors of the two operands in the first set, in the second set, and so on.

The results of consecutive sets then differ by an exact factor, such as −2. A workspace, a flag or a
sum that is left over from the previous launch therefore makes a result wrong."""

ALIGNED_BYTES = 256
"""Each set begins at a multiple of this number of bytes, as an allocation does. A library may
choose its kernel by the alignment, and a kernel may load several elements at once."""

DOUBLED_BITS = 32
"""Minimum number of bits of operands that are doubled. Narrower types have too small a range, so
operands of these types only change their sign."""


@dataclass(frozen=True, kw_only=True)
class SetPolicy:
    """The policy that keeps the operands of a problem out of the cache, or in the cache."""

    count: int  # number of sets
    flush: bool
    """Whether the sets together fit into the cache, which must then be flushed between samples."""

    @property
    def min_launches(self) -> int:
        """Minimum number of launches in a sequence that is repeated, such as a graph.

        The sequence must use each set once, unless the cache is flushed between repetitions.
        """
        return 1 if self.flush else self.count

    @property
    def max_launches(self) -> int:
        """Maximum number of launches in a sample, so that no launch finds its set in the cache."""
        return min(self.count, MAX_LAUNCHES) if self.flush else MAX_LAUNCHES


def set_policy(problem: Problem, cache_bytes: int, *, cold: bool, max_sets: int) -> SetPolicy:
    """Return the policy for a device with `cache_bytes` of last-level cache.

    For a problem so small that it needs more than `max_sets` sets, the cache is flushed instead.
    """
    if not cold:
        return SetPolicy(count=1, flush=False)
    # The number of sets is one more than the number that fills the cache, so that the other sets
    # fill the cache before a set is reused. There are at least two sets: with one set, a large
    # problem would find the tail of its previous launch in the cache.
    count = -(-CACHES_TO_OUTGROW * cache_bytes // problem.bytes) + 1
    return SetPolicy(count=min(count, max_sets), flush=count > max_sets)


def operand_factors(problem: Problem, index: int) -> tuple[int, ...]:
    """Return the factors of a set's operands. The factors of the first set are 1.

    If the operation is not linear, all factors are 1, because each set has values of its own.
    """
    count = len(problem.operation.inputs)
    if not problem.operation.is_linear:
        return (1,) * count
    a, b = FACTORS[index % len(FACTORS)]
    bits = min(8 * bytes_of_element(kind) for kind in problem.types[:count])
    return ((a, b) if bits >= DOUBLED_BITS else (a, b // abs(b)))[:count]


def result_factor(problem: Problem, index: int) -> int:
    """Return the exact ratio of a set's result to the result of the first set."""
    names = [array.name for array in problem.operation.inputs]
    factors = dict(zip(names, operand_factors(problem, index), strict=True))
    return math.prod(factors[name] for name in problem.operation.linear_in if name in factors)


def content_of(problem: Problem, index: int) -> int:
    """Return a number that identifies a set's contents. Equal contents give equal results.

    The number is the factor of the result if the operation is linear, or else the index of the
    set's own values.
    """
    is_linear = problem.operation.is_linear
    return result_factor(problem, index) if is_linear else index % len(FACTORS)


class Rotation:
    """The order in which launches use the sets. All kernels on the same operands share the order.

    If each kernel started with the first set, it could find that set in the cache, where the
    previous kernel left it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._next = 0
        self._untouched = 0
        self.used = set(range(count))
        """Sets that launches wrote into since the outputs were last filled. At first, this is all
        sets."""

        self.zeroed = False
        """Whether the outputs were last filled with zeros, for a kernel that reads them."""

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        index = self._next
        self._next = (index + 1) % self._count
        self._untouched -= 1
        self.used.add(index)
        return index

    def take(self, launches: int, flush: Callable[[], None] | None = None) -> list[int]:
        """Return the indices of the next sets. Flush first if such a set was used since a flush."""
        if flush and self._untouched < launches:
            flush()
            self._untouched = self._count
        return [next(self) for _ in range(launches)]


@dataclass(frozen=True, kw_only=True)
class OperandSets:
    """A problem's arrays on a device."""

    problem: Problem
    host_inputs: tuple[Any, ...]  # the inputs in host memory, where no kernel can overwrite them
    sets: tuple[tuple[Any, ...], ...]  # the arrays of each set: the inputs, then the output
    policy: SetPolicy
    rotation: Rotation
    contents: tuple[tuple[Any, ...], ...] = ()
    """The inputs in host memory, for each different content of the sets. Empty if the contents
    differ by factors only."""

    def fingerprints(self) -> dict[int, int]:
        """Return a number for the output of each set that launches wrote into.

        Equal bits give equal numbers. Raises LaunchError.
        """
        return {
            index: zlib.crc32(_by_rows(self.sets[index][-1]).view("uint8"))
            for index in self.rotation.used
        }

    def fill_outputs(self, value: float) -> None:
        """Fill the output of each set that launches wrote into."""
        for index in self.rotation.used:
            self.sets[index][-1].fill(value)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The first set's inputs."""
        return self.sets[0][:-1]

    @property
    def output(self) -> Any:
        """The first set's output."""
        return self.sets[0][-1]


Placed = Callable[[], AbstractContextManager[None]]
"""Function that returns a context manager. A kernel must be launched inside the block of this
manager."""


class FixedArrays:
    """Arrays at fixed addresses, for kernels that keep the addresses of their arguments.

    `copy` returns an aligned copy of an array, in the same layout.
    """

    def __init__(self, copy: Callable[[Any], Any] = lambda array: array.copy(order="K")) -> None:
        self._copy = copy
        self._arrays: dict[Problem, tuple[Any, ...]] = {}

    def place(self, point: Point, operands: OperandSets) -> tuple[tuple[Any, ...], Placed]:
        """Return the sets that the point's kernel is launched on, and the context for the launches.

        For a kernel that keeps addresses, there is one set at fixed addresses. The operands are
        copied there when the context begins, and copied back when it ends. Raises DoesNotFitError
        if the launches are timed end to end, because such launches allocate new arrays.
        """
        if not point.variant.fixed_addresses:
            return operands.sets, nullcontext
        if point.scope == Scope.END_TO_END:
            raise DoesNotFitError(
                "requires fixed addresses, but --scope end-to-end allocates new arrays"
            )
        (own,) = operands.sets
        fixed = self._arrays.get(operands.problem) or tuple(map(self._copy, own))
        self._arrays[operands.problem] = fixed

        @contextmanager
        def placed() -> Iterator[None]:
            for to, array in zip(fixed, own, strict=True):
                to[...] = array
            yield
            for to, array in zip(own, fixed, strict=True):
                to[...] = array

        return (fixed,), placed


def stacked(make: Callable[..., Any], count: int, problem: Problem) -> list[Any]:
    """Return an array for each operand and for the result.

    The memory of each array has room for `count` sets. `make` takes a shape and an element type,
    and returns aligned memory. Each set begins at a multiple of `ALIGNED_BYTES`. Each matrix is
    row-major or column-major, as the problem requires.
    """
    return [
        in_sets(make((count, set_size(shape, bytes_of_element(kind))), kind), shape, by_columns)
        for shape, kind, by_columns in zip(
            problem.shapes, problem.types, problem.by_columns, strict=True
        )
    ]


def set_size(shape: Sequence[int], item_bytes: int) -> int:
    """Return the number of elements between the starts of an array in two consecutive sets."""
    of_line = ALIGNED_BYTES // item_bytes
    return -(-math.prod(shape) // of_line) * of_line


def in_sets(memory: Any, shape: Sequence[int], by_columns: bool) -> Any:
    """Return the arrays of all sets, as views of `memory`. Each row of `memory` has one set."""
    sets = memory[:, : math.prod(shape)]
    in_memory = sets.reshape(len(sets), *(reversed(shape) if by_columns else shape))
    return in_memory.swapaxes(1, -1) if by_columns else in_memory


def bytes_of_sets(problem: Problem, count: int) -> list[int]:
    """Return how many bytes each operand and the result have in `count` sets."""
    sizes = zip(problem.shapes, map(bytes_of_element, problem.types), strict=True)
    return [count * item_bytes * set_size(shape, item_bytes) for shape, item_bytes in sizes]


def first_rows(sets: Sequence[Sequence[Any]], problem: Problem) -> tuple[tuple[Any, ...], ...]:
    """Return views of each set's arrays, cut to the number of rows that `problem` has."""
    heights = [shape[0] for shape in problem.shapes]
    if [len(array) for array in sets[0]] == heights:  # saves time: a CPU has thousands of sets
        return tuple(map(tuple, sets))
    return tuple(
        tuple(array[:height] for array, height in zip(arrays, heights, strict=True))
        for arrays in sets
    )


def _by_rows(array: Any) -> Any:
    """Return the array if it is row-major in memory, or else its transpose."""
    return array if array.flags.c_contiguous else array.T
