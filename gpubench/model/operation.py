"""The operations: shapes of operands and results, and work. Standard library only."""

from dataclasses import dataclass

Shape = tuple[int, ...]

LARGEST = 2**31 - 1
"""Largest M, N and K: kernels take them as 32-bit integers."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A matrix operation: its operands' shapes and its work.

    Letters stand for extents: `mk` is the shape M×K. Matrices are row-major. The names are BLAS's,
    and PolyBench's for `atax`:

    - `gemm`: C (M×N) = A (M×K) · B (K×N);
    - `gemv`: y (M) = A (M×N) · x (N);
    - `gemv_t`: y (N) = Aᵀ · x (M), of A (M×N);
    - `atax`: c (N) = Aᵀ · (A · v (N)), of A (M×N).
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    terms: str
    """The extent over which products are summed for an element of the result."""

    arrays: tuple[str, ...] = ("A", "x", "y")
    """Names of the operands and the result in the kernels, in the order of their arguments."""

    uses_of_a: int = 1
    """Number of products in which an element of A is a factor, for each column of B."""

    @property
    def has_k(self) -> bool:
        """Whether the operation has an inner extent. If not, K is 1."""
        return "k" in self.inputs[0]

    @property
    def bandwidth_bound(self) -> bool:
        """Whether memory alone limits the speed, as each element of A is used once or twice.

        The rate is then compared with a copy.
        """
        return not self.has_k

    def size(self, m: int, n: int, k: int) -> str:
        """Write a size as `--sizes` takes it: `1024`, `320x640x320`, or `320x640` without K."""
        numbers = (m, n, k) if self.has_k else (m, n)
        return str(m) if len(set(numbers)) == 1 else "x".join(map(str, numbers))


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation(name="gemm", inputs=("mk", "kn"), output="mn", terms="k", arrays=("A", "B", "C")),
        Operation(name="gemv", inputs=("mn", "n"), output="m", terms="n"),
        Operation(name="gemv_t", inputs=("mn", "m"), output="n", terms="m"),
        Operation(name="atax", inputs=("mn", "n"), output="n", terms="m", uses_of_a=2),
    )
}
