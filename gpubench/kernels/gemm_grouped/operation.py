"""Products of groups of rows with a matrix per group, as in models with experts.

A router sends each row of A to one of GROUPS experts. The rows of an expert are a group, and lie
one below the other. `offsets` has the index of the row after the last row of each group. Each row's
group is drawn at random. In `gemm_grouped`, all groups are equally likely. In
`gemm_grouped_skewed`, the r-th most likely group has 1/r of the probability of the most likely
group. So a group may have any number of rows, or no rows. M is the mean number of rows per group.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from gpubench.model.operation import Array, Operation, Shape


def spans(offsets: Any) -> Iterator[tuple[int, int, int]]:
    """Yield the index, the first row, and the row after the last row of each group with rows."""
    for group, (begin, end) in enumerate(pairwise((0, *map(int, offsets)))):
        if end > begin:
            yield group, begin, end


def _reference(xp: Any, a: Any, b: Any, offsets: Any) -> Any:
    result = xp.zeros((a.shape[0], b.shape[2]))
    for group, begin, end in spans(offsets):
        result[begin:end] = a[begin:end] @ b[group]
    return result


def _scale(xp: Any, a: Any, b: Any, offsets: Any) -> Any:
    """Return ‖row of A‖·‖column of its group's B‖ for each element of C."""
    scale = xp.sqrt(xp.square(a).sum(axis=1))[:, None] * xp.ones(b.shape[2])
    for group, begin, end in spans(offsets):
        scale[begin:end] *= xp.sqrt(xp.square(b[group]).sum(axis=0))
    return scale


def _drawn(exponent: int) -> Callable[..., Sequence[Any]]:
    """Return a function that draws operands. A group's share of rows is 1 / rank**exponent."""

    def make(rng: Any, shapes: Sequence[Shape]) -> Sequence[Any]:
        import numpy as np  # completion reads this file, and must be fast

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
