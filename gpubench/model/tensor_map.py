"""Describes matrices for the tensor memory accelerator."""

from dataclasses import dataclass

from gpubench.model.precision import PRECISIONS, Precision
from gpubench.model.problem import Problem

SWIZZLE_BYTES = (0, 32, 64, 128)  # possible values, in the order of CUtensorMapSwizzle
L2_PROMOTION_BYTES = (0, 64, 128, 256)  # possible values, in the order of CUtensorMapL2promotion


@dataclass(frozen=True, kw_only=True)
class TensorMap:
    """A row-major matrix, or a batch of such matrices, for the tensor memory accelerator (TMA).

    The TMA is part of compute capability 9.0.
    """

    array: int
    """Index of the array that contains the matrix. The arrays are the operands, the output and the
    workspace."""

    shape: tuple[int, int]
    """Number of rows and number of columns of a matrix."""

    box: tuple[int, int]
    """Number of rows and number of columns that one copy moves, each at most 256. A copy reads
    zeros outside the matrix."""

    offset_bytes: int = 0
    """Number of bytes from the start of the array to the matrix."""

    pitch: int = 0
    """Number of elements from the start of a row to the start of the next row. The bytes of these
    elements are a multiple of 16. 0 means the number of columns."""

    batch: int = 0
    """Number of matrices, which follow each other in memory. The map then has three dimensions, and
    a box lies in one matrix. 0 means one matrix, and the map then has two dimensions."""

    swizzle_bytes: int = 0
    """Width of the swizzle, the pattern that spreads the box over the banks of shared memory. The
    swizzle is at least as wide as a row of the box. 0 means no swizzle."""

    l2_promotion_bytes: int = 128
    """Minimum number of bytes that the L2 cache fetches at once. 0 means the size of the copy."""

    dtype: str = ""
    """The precision of the matrix's elements. Empty means the precision of the operands or of the
    result."""

    @property
    def elements(self) -> int:
        """Number of elements that all matrices have together."""
        rows, columns = self.shape
        return rows * columns * max(self.batch, 1)

    def precision(self, problem: Problem) -> Precision:
        """Return the precision of the matrix's elements."""
        of_result = self.array == len(problem.input_shapes)
        result = problem.precision.result if of_result else problem.dtype
        return PRECISIONS[self.dtype or result]
