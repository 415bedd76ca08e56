"""The operations: shapes of operands and results, and work. Standard library only."""

from collections.abc import Callable
from dataclasses import dataclass, replace

Shape = tuple[int, ...]

LARGEST = 2**31 - 1
"""Largest M, N and K: kernels take them as 32-bit integers."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A matrix operation: its operands' shapes and its work.

    Shapes and work are functions of M, N and K. `flops` counts a multiply-add as two. Matrices are
    row-major. The names are BLAS's, and PolyBench's for `atax`:

    - `gemm`: C (M×N) = A (M×K) · B (K×N);
    - `gemv`: y (M) = A (M×N) · x (N);
    - `gemv_t`: y (N) = Aᵀ · x (M), of A (M×N);
    - `atax`: c (N) = Aᵀ · (A · v (N)), of A (M×N).
    """

    name: str
    inputs: Callable[[int, int, int], tuple[Shape, ...]]
    output: Callable[[int, int, int], Shape]
    flops: Callable[[int, int, int], int]
    terms: Callable[[int, int, int], int]
    """Number of products that are summed for an element of the result."""

    arrays: tuple[str, ...] = ("A", "x", "y")
    """Names of the operands and the result in the kernels, in the order of their arguments."""

    uses_of_a: int = 1
    """Number of products in which an element of A is a factor."""

    has_k: bool = True
    """Whether the operation has an inner extent. If not, K is 1."""

    bandwidth_bound: bool = False
    """Whether memory alone limits the speed, as each element of A is used once or twice. The rate
    is then compared with a copy."""

    def size(self, m: int, n: int, k: int) -> str:
        """Write a size as `--sizes` takes it: `1024`, `320x640x320`, or `320x640` without K."""
        numbers = (m, n, k) if self.has_k else (m, n)
        return str(m) if len(set(numbers)) == 1 else "x".join(map(str, numbers))


GEMV = Operation(
    name="gemv",
    inputs=lambda m, n, _k: ((m, n), (n,)),
    output=lambda m, _n, _k: (m,),
    flops=lambda m, n, _k: 2 * m * n,
    terms=lambda _m, n, _k: n,
    has_k=False,
    bandwidth_bound=True,
)

OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation(
            name="gemm",
            inputs=lambda m, n, k: ((m, k), (k, n)),
            output=lambda m, n, _k: (m, n),
            flops=lambda m, n, k: 2 * m * n * k,
            terms=lambda _m, _n, k: k,
            arrays=("A", "B", "C"),
        ),
        GEMV,
        replace(
            GEMV,
            name="gemv_t",
            inputs=lambda m, n, _k: ((m, n), (m,)),
            output=lambda _m, n, _k: (n,),
            terms=lambda m, _n, _k: m,
        ),
        replace(
            GEMV,
            name="atax",
            output=lambda _m, n, _k: (n,),
            flops=lambda m, n, _k: 4 * m * n,
            terms=lambda m, _n, _k: m,
            uses_of_a=2,
        ),
    )
}
