"""Products of groups of rows, each with its own matrix, as models with experts have them.

A router sends each row of A to one of GROUPS experts, and the rows of an expert lie one below the
other. `offsets` has the row behind the last row of each group. Groups are drawn at random for each
row: in `gemm_grouped` all are equally likely, and in `gemm_grouped_skewed` the r-th most popular
group gets 1/r of the rows of the first one. So a group has any number of rows, or none. M is their
mean.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from gpubench.model.operation import Array, Operation, Shape


def spans(offsets: Any) -> Iterator[tuple[int, int, int]]:
    """Yield the number, the first row, and the row behind the last row of each group with rows."""
    for group, (begin, end) in enumerate(pairwise((0, *map(int, offsets)))):
        if end > begin:
            yield group, begin, end


def _reference(xp: Any, a: Any, b: Any, offsets: Any) -> Any:
    result = xp.zeros((a.shape[0], b.shape[2]))
    for group, begin, end in spans(offsets):
        result[begin:end] = a[begin:end] @ b[group]
    return result


def _scale(xp: Any, a: Any, b: Any, offsets: Any) -> Any:
    """Return ‖row of A‖·‖column of its B‖ of each element."""
    scale = xp.sqrt(xp.square(a).sum(axis=1))[:, None] * xp.ones(b.shape[2])
    for group, begin, end in spans(offsets):
        scale[begin:end] *= xp.sqrt(xp.square(b[group]).sum(axis=0))
    return scale


def _drawn(exponent: int) -> Callable[..., Sequence[Any]]:
    """Return a function that draws operands. Groups have shares of 1/rank to the `exponent`."""

    def make(rng: Any, shapes: Sequence[Shape]) -> Sequence[Any]:
        import numpy as np  # completion needs this file without it

        of_a, of_b, (groups,) = shapes
        shares = 1 / rng.permutation(np.arange(1.0, groups + 1)) ** exponent
        sizes = rng.multinomial(of_a[0], shares / shares.sum())
        a, b = (2 * rng.random(shape, np.float32) - 1 for shape in (of_a, of_b))
        return a, b, np.cumsum(sizes)

    return make


def _operation(idea: str, exponent: int) -> Operation:
    return Operation(
        idea=f"C = A · B, where each row has the B of its group; {idea}",
        extents=("GROUPS", "M", "N", "K"),
        inputs=(
            Array("A", "GROUPS*M K"),
            Array("B", "GROUPS K N"),
            Array("offsets", "GROUPS", dtype="int32"),
        ),
        output=Array("C", "GROUPS*M N"),
        reference=_reference,
        flops="2*GROUPS*M*N*K",
        linear_in=("A", "B"),
        terms="K",
        scale=_scale,
        make=_drawn(exponent),
    )


OPERATION = {
    "gemm_grouped": _operation("groups are equally likely", 0),
    "gemm_grouped_skewed": _operation("the r-th largest group has 1/r of the first one's rows", 1),
}
