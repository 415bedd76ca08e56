"""Defines a problem, which is an operation with one size and one dtype."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpubench.model.operation import OPERATIONS, Array, Operation, Shape, Size, size_text
from gpubench.model.precision import PRECISIONS, Precision, bytes_of_element

LAYOUTS: dict[str, tuple[str, ...]] = {"nn": (), "nt": ("B",), "tn": ("A",), "tt": ("A", "B")}
"""Maps each value of `--layouts` to its column-major matrices. A value has a letter for A, and then
a letter for B.

The letter n means that the matrix is row-major. The letter t means that the matrix is column-major,
that is, its transpose is row-major.
"""


def layouts_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Convert layouts from the form of the CSV's column to values of `--layouts`.

    The result is empty if all matrices are row-major, which is the default, or have the layout that
    a kernel requires.
    """
    names = {layout_text(column_major): name for name, column_major in LAYOUTS.items()}
    listed = dict.fromkeys(names[text] for text in texts if text in names)
    return () if list(listed) == ["nn"] else tuple(listed)


def layout_text(column_major: tuple[str, ...]) -> str:
    """Write a layout in the form of the CSV's column, such as `row-major` or `column-major B`."""
    return f"column-major {' '.join(column_major)}" if column_major else "row-major"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One operation at one size, such as C (M×N) = A (M×K) · B (K×N), in one dtype."""

    op: str
    m: int
    n: int
    k: int = 1
    """The inner extent, which is 1 for an operation on a matrix and a vector."""

    further: tuple[int, ...] = ()
    """The operation's extents beyond M, N and K, in the operation's order."""

    dtype: str
    """The name of the problem's precision, which is a value of `--dtypes`."""

    column_major: tuple[str, ...] = ()
    """The column-major matrices, such as `("B",)`. All other matrices are row-major. Empty means
    the column-major matrices of the precision."""

    def __post_init__(self) -> None:
        layout = self.column_major or self.precision.column_major
        object.__setattr__(self, "column_major", layout)
        names = OPERATIONS[self.op].further if self.op in OPERATIONS else ()
        object.__setattr__(
            self, "further", (*self.further, *(1 for _ in names[len(self.further) :]))
        )

    @property
    def precision(self) -> Precision:
        """The problem's precision, which states the element types and the rounding."""
        return PRECISIONS[self.dtype]

    @property
    def operation(self) -> Operation:
        """The problem's operation, which states the shapes and the work."""
        return OPERATIONS[self.op]

    @property
    def extents(self) -> dict[str, int]:
        """The problem's extents by name, in the operation's order."""
        return self.operation.named(self.numbers)

    @property
    def numbers(self) -> Size:
        """The size as numbers, which are M, N, K and the further extents."""
        return self.m, self.n, self.k, *self.further

    @classmethod
    def of(cls, op: str, size: Size, dtype: str) -> "Problem":
        """Return the problem with an operation, a size and a dtype."""
        return cls(op=op, m=1, n=1, dtype=dtype).at(size)

    def at(self, size: Size) -> "Problem":
        """Return this problem at another size."""
        m, n, k, *further = size
        return replace(self, m=m, n=n, k=k, further=tuple(further))

    @property
    def flops(self) -> int:
        """Number of floating-point or integer operations. A multiply-add is two operations."""
        return self.operation.work(self.extents)

    @property
    def bytes(self) -> int:
        """Number of bytes that move if each operand and the result move only once."""
        return sum(self.bytes_of_arrays)

    @property
    def bytes_of_arrays(self) -> tuple[int, ...]:
        """Number of bytes of each operand, and number of bytes of the result."""
        arrays = zip(self.shapes, self.types, strict=True)
        return tuple(math.prod(shape) * bytes_of_element(kind) for shape, kind in arrays)

    @property
    def input_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the operands, in the kernels' argument order."""
        return tuple(self._shape(array) for array in self.operation.inputs)

    @property
    def output_shape(self) -> Shape:
        """Shape of the result."""
        return self._shape(self.operation.output)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shapes of the operands and the result."""
        return (*self.input_shapes, self.output_shape)

    @property
    def batch(self) -> int:
        """Number of separate operations in the batch, or 1 without a batch."""
        return self.extents.get(self.operation.batch, 1)

    @property
    def shapes_of_one(self) -> tuple[Shape, ...]:
        """Shapes of the operands and the result in one operation of the batch."""
        return tuple(shape[1:] for shape in self.shapes) if self.operation.batch else self.shapes

    @property
    def types(self) -> tuple[str, ...]:
        """Element types of the operands and the result."""
        precision, operation = self.precision, self.operation
        inputs = (array.dtype or precision.element for array in operation.inputs)
        return (*inputs, operation.output.dtype or precision.result)

    @property
    def by_columns(self) -> tuple[bool, ...]:
        """Whether each array is column-major, in the order of the operands and the result."""
        return tuple(name in self.column_major for name in self.operation.arrays)

    @property
    def layout(self) -> str:
        """The layout of the problem's matrices, in the form of the CSV's column."""
        return layout_text(self.column_major)

    @property
    def strides(self) -> dict[str, int]:
        """Maps the BLAS name of each leading dimension, such as `lda`, to its value in elements."""
        return {
            f"ld{name.casefold()}": shape[-2 if by_columns else -1]
            for name, shape, by_columns in zip(
                self.operation.arrays, self.shapes, self.by_columns, strict=True
            )
            if len(shape) > 1
        }

    @property
    def tolerance(self) -> float:
        """Largest error that a right result may have, as the operation or the precision states."""
        stated = self.operation.tolerance
        return self.precision.tolerance if stated is None else stated

    @property
    def terms(self) -> int:
        """Number of products whose sum is an element of the result."""
        return self.extents.get(self.operation.terms, 1)

    @property
    def size(self) -> str:
        """The problem's size in the form of `--sizes`."""
        return size_text(self.op, self.numbers)

    def _shape(self, array: Array) -> Shape:
        return self.operation.shape(array, self.extents)
