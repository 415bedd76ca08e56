"""Defines an operation by the shapes of its arrays, its formula and its amount of work.

The file `kernels/<op>/operation.py` states an operation. No other code contains the operation's
name.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from gpubench.model.expression import evaluate

Shape = tuple[int, ...]

Size = tuple[int, ...]
"""Type of a size, which has M, N and K, and then the operation's further extents. M, N or K is 1 if
the operation lacks it."""

PRODUCT_EXTENTS = ("M", "N", "K")
"""Names of the extents that have their own columns in result files."""

MATRIX = 2  # number of dimensions of a matrix

LARGEST = 2**31 - 1
"""Largest extent, because kernels take extents as 32-bit integers."""

DEFAULT_OP = "gemm"  # operation of a command without `--op`
DEFAULT_FILE_OP = "atax"  # operation of a command that reads operand files

LISTED_INTENSITY = 32  # with fewer operations per element, memory limits listed problems
SMALL_EXTENT = 2**10  # the smaller extent for which the work per element is computed
LARGE_EXTENT = 2**12  # the larger extent for which the work per element is computed


@dataclass(frozen=True)
class Array:
    """An operand or a result. A matrix is row-major unless the layout makes it column-major."""

    name: str
    """The array's name in the kernels, such as `A`."""

    shape: str
    """The array's extents, such as `M K`. The last extent is contiguous in memory."""

    dtype: str = ""
    """The type of the array's elements. Empty means the type of the precision's operands or
    results."""

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The array's extents as texts, one for each dimension, such as `("M", "K")`."""
        return tuple(self.shape.split())


class Compared(NamedTuple):
    """The result of comparing an output with the right result."""

    reason: str
    """The reason why the output is wrong. Empty if the output is right."""

    judged: float
    """The error that decides whether the output is right, divided by the tolerance."""

    largest: float  # the largest error of an element, relative to the largest element
    rms: float  # the root mean square of the errors, relative to the root mean square of elements


class ListedSize(NamedTuple):
    """A problem in the list of an operation that has only listed problems."""

    name: str
    """The name by which tables show the problem."""

    shapes: tuple[Shape, ...]
    """The shapes of the operands and the result."""

    flops: int


@dataclass(frozen=True, kw_only=True)
class Operation:
    """The operation that a kernel computes.

    The file `operation.py` in the operation's folder states the operation.
    """

    idea: str
    """The operation's formula, in one line of text."""

    extents: tuple[str, ...]
    """The extents in the order of `--sizes`, such as `("M", "N", "K")`."""

    inputs: tuple[Array, ...]
    """The operands, in the order of a kernel's arguments."""

    output: Array
    """The result, which is the argument after the operands."""

    reference: Callable[..., Any]
    """Takes (xp, operands…) and returns the result. `xp` is the module of the arrays, NumPy or
    CuPy."""

    flops: str
    """Expression for the number of floating-point or integer operations. A multiply-add counts as
    two operations."""

    linear_in: tuple[str, ...] = ()
    """The operands in which the result is linear. An operand that is a factor twice, such as A in
    Aᵀ·(A·x), is listed twice."""

    added: tuple[str, ...] = ()
    """The operands that are added to the product of the first two operands. If the added operands
    hold zeros, the result is the product alone, which is probed exactly."""

    scaled: Callable[..., tuple[Any, Any]] | None = None
    """Takes (xp, operands…) and returns the first two operands, with each element multiplied by its
    scale. The other operands are the scales. The operation's result is the product of the two
    returned arrays."""

    terms: str = ""
    """The extent over which products are summed for an element of the result. Empty if the
    operation has no sum."""

    tolerance: float | None = None
    """Largest error of a right result, relative to the `scale` of its elements. None means the
    precision's tolerance for sums."""

    scale: Callable[..., Any] | None = None
    """Takes (xp, operands…) and returns the scale of each element, such as the sum of magnitudes.
    Errors are relative to the scale plus the element's size. The scale of a product is the product
    of norms."""

    make: Callable[..., Sequence[Any]] | None = None
    """Takes (generator, shapes) and returns the operands as NumPy arrays. None if the operands may
    have uniformly distributed values."""

    comparison: Callable[..., tuple[Any, Callable[[Any], Compared]]] | None = None
    """Takes (operands…) and returns the right result, and a function that compares an output with
    the right result. The operands are NumPy arrays, and an output is an array of the backend. None
    if a scale and a tolerance suffice."""

    listed: tuple[ListedSize, ...] = ()
    """The only problems that the operation has. Empty if the operation has problems of any size. An
    operation with a list has a single extent, which is the number of a problem, from 1 on. The list
    states the shapes and the work of each problem."""

    dtype: str = ""
    """The only precision of an operation whose problems are listed."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the operands and the result."""
        return tuple(array.name for array in (*self.inputs, self.output))

    @property
    def matrices(self) -> tuple[str, ...]:
        """Names of the arrays that are matrices, which have two dimensions."""
        each = (*self.inputs, self.output)
        return tuple(array.name for array in each if len(array.dimensions) == MATRIX)

    @property
    def has_k(self) -> bool:
        """Whether the operation has an inner extent K. Without an inner extent, K is 1."""
        return "K" in self.extents

    @property
    def is_uniform(self) -> bool:
        """Whether the first operand may have any values of the precision's type."""
        return self.make is None and not self.inputs[0].dtype

    @property
    def has_layouts(self) -> bool:
        """Whether the operation has matrices A and B, for which `--layouts` has one letter each."""
        return {"A", "B"} <= set(self.matrices)

    @property
    def is_by_rows(self) -> bool:
        """Whether the result is a matrix whose row i depends on row i of the first operand."""
        shared = self.inputs[0].dimensions[0] == self.output.dimensions[0]
        return shared and self.output.name in self.matrices

    @property
    def first_is_transposed(self) -> bool:
        """Whether the only or last product sums over the rows of the first operand."""
        return self.inputs[0].dimensions[0] == self.terms

    @property
    def is_linear(self) -> bool:
        """Whether the result is linear in each operand, so that an operand may be scaled."""
        return {array.name for array in self.inputs} == set(self.linear_in)

    @property
    def is_product(self) -> bool:
        """Whether the operation is a product with a matrix or vector, over the extent `terms`.

        Tests with scaled operands and with single rows then show errors that a tolerance hides.
        """
        return self.has_product and not (self.added or self.scaled or self.batch)

    @cached_property
    def batch(self) -> str:
        """The extent that counts the separate operations of a batch. Empty if there is no batch.

        This extent is the first extent of all arrays, such as `BATCH M K`, and is not M, N or K.
        """
        arrays = (*self.inputs, self.output)
        firsts = {each for array in arrays for each in array.dimensions[:1] or [""]}
        return next(iter(firsts & {*self.further}), "") if len(firsts) == 1 else ""

    @cached_property
    def has_product(self) -> bool:
        """Whether the operation is a product or a batch of products, with terms and scales ignored.

        Both factors have the type of the precision's operands. Exact probes, and probes of the
        widths of sums, then show errors that a tolerance hides.
        """
        factors = [array for array in self.inputs if array.name not in self.added]
        if self.scaled:
            factors = factors[:2]
        is_linear = {array.name for array in factors} == set(self.linear_in)
        begin = 1 if self.batch else 0
        shapes = [array.dimensions[begin:] for array in (*factors, self.output)]
        has_others = bool({*self.further} - {self.batch})
        has_others |= any(array.dtype for array in factors)
        if not is_linear or has_others or [len(factors), len(shapes[0])] != [2, 2]:
            return False
        (rows, depth), second, result = shapes
        if self.first_is_transposed:
            rows, depth = depth, rows
        second = (depth,) if self.is_chain else second
        return depth == self.terms == second[0] and result == (rows, *second[1:])

    @property
    def is_chain(self) -> bool:
        """Whether the second factor of the last product is a product itself."""
        return len(self.linear_in) > len(set(self.linear_in))

    @cached_property
    def bandwidth_bound(self) -> bool:
        """Whether memory limits the speed, because each element is used a fixed number of times.

        The operation's rate is then compared with the rate of a copy.
        """
        if self.listed:
            intensities = (each.flops / sum(map(math.prod, each.shapes)) for each in self.listed)
            return max(intensities) < LISTED_INTENSITY
        small, large = (self._flops_per_element(extent) for extent in (SMALL_EXTENT, LARGE_EXTENT))
        return large < 2 * small

    def _flops_per_element(self, extent: int) -> float:
        names = dict.fromkeys(self.extents, extent)
        elements = sum(math.prod(self.shape(each, names)) for each in (*self.inputs, self.output))
        return evaluate(self.flops, names) / elements

    def work(self, extents: Mapping[str, int]) -> int:
        """Return the number of arithmetic operations. `extents` has the number of each extent.

        Raise ValueError for an unknown name, and for the number of a problem that is not listed.
        """
        return self._listed(extents).flops if self.listed else evaluate(self.flops, extents)

    def _listed(self, extents: Mapping[str, int]) -> ListedSize:
        (number,) = extents.values()
        if not 1 <= number <= len(self.listed):
            raise ValueError(f"there is no problem {number}, only 1 to {len(self.listed)}")
        return self.listed[number - 1]

    def shape(self, array: Array, extents: Mapping[str, int]) -> Shape:
        """Return the shape of an array. `extents` has the number of each extent.

        Raise ValueError for an unknown name.
        """
        if self.listed:
            return self._listed(extents).shapes[self.arrays.index(array.name)]
        return tuple(evaluate(extent, extents) for extent in array.dimensions)

    @property
    def further(self) -> tuple[str, ...]:
        """The extents beyond M, N and K."""
        return tuple(name for name in self.extents if name not in PRODUCT_EXTENTS)

    def named(self, size: Size) -> dict[str, int]:
        """Return a size as a dictionary of extents by name, in the operation's order."""
        values = dict(zip((*PRODUCT_EXTENTS, *self.further), size, strict=False))
        return {name: values.get(name, 1) for name in self.extents}

    def size_of(self, values: Iterable[int]) -> Size:
        """Return the size that has these extents, which are given in the operation's order."""
        named = dict(zip(self.extents, values, strict=True))
        return tuple(named.get(name, 1) for name in (*PRODUCT_EXTENTS, *self.further))

    def further_text(self, values: Iterable[int]) -> str:
        """Write the further extents in the form of the CSV's column, such as `batch=8;heads=2`."""
        pairs = zip(self.further, values, strict=True)
        return ";".join(f"{name.casefold()}={value}" for name, value in pairs)


def size_of(row: Any) -> Size:
    """Return the size that a row of results has in its columns m, n, k and extents."""
    further = (text.partition("=")[2] for text in row.extents.split(";"))
    return (row.m, row.n, row.k, *(int(text[:10]) for text in further if text.isdecimal()))


def size_text(op: str, size: Size) -> str:
    """Write a size in the form of `--sizes`, such as `1024`, `320x640x320`, or `320x640` without K.

    If the operation is not known here, its further extents are written first.
    """
    operation = OPERATIONS.get(op)
    m, n, k, *further = size
    if operation and len(further) == len(operation.further):
        numbers = [*operation.named(size).values()]
    else:
        numbers = [*further, *((m, n, k) if not further or max(m, n, k) > 1 else ())]
    return str(numbers[0]) if len(set(numbers)) == 1 else "x".join(map(str, numbers))


class Operations(Mapping[str, Operation]):
    """Maps names to operations. The files of gpubench are read when an operation is first needed.

    A file states one operation, which has the folder's name, or several operations by name, which
    share the folder's kernels.
    """

    def __init__(self, folder: Path, package: str) -> None:
        self._folder, self._package = folder, package
        self.files: dict[str, Path] = {}
        """Maps the name of each operation to its file. In a new process for users' kernels, the
        users' files are missing."""

    @cached_property
    def _by_name(self) -> dict[str, Operation]:
        by_name: dict[str, Operation] = {}
        for path in sorted(self._folder.glob("*/operation.py")):
            module = import_module(f"{self._package}.{path.parent.name}.operation")
            by_name |= (operations := stated(module.OPERATION, path))
            self.files |= dict.fromkeys(operations, path)
        return by_name

    def is_ours(self, name: str) -> bool:
        """Whether gpubench itself states an operation, rather than a user's file."""
        return name in self and self.files[name].is_relative_to(self._folder)

    def named_by(self, folder: str) -> list[str]:
        """Return the names of the operations that the file in a folder states."""
        return [name for name in self if self.files[name].parent.name == folder]

    def add(self, name: str, operation: Operation, path: Path) -> None:
        """Add or replace a user's operation. Raise ValueError for a name that gpubench uses."""
        for taken in (name, path.parent.name):
            if self.is_ours(taken) or (self._folder / taken).is_dir():
                raise ValueError(f"an operation '{taken}'")
        self._by_name[name], self.files[name] = operation, path

    def __getitem__(self, name: str) -> Operation:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def stated(operation: Any, path: Path) -> dict[str, Any]:
    """Return the operations of a file by name. A single operation has the folder's name."""
    return operation if isinstance(operation, dict) else {path.parent.name: operation}


OPERATIONS = Operations(Path(__file__).parents[1] / "kernels", "gpubench.kernels")
