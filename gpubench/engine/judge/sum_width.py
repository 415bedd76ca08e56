"""Makes probes that show how many bits the sums of a kernel keep.

The sums of a probe have large terms that cancel, and small terms between the large terms. The terms
of a row are ±2ʷ at random places, with alternating signs, and ±1 at all other places. A sum that
keeps more than w bits is exact in any order. A narrower sum loses some of the small terms, even if
only the partial sums over parts of K are narrow. Rows have different w, so a single launch shows
how many bits the sums keep. (Fasi, Higham, Mikaitis, Pranesh: Numerical behavior of NVIDIA tensor
cores, 2021, find the width of a tensor core by such terms.)
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubench.backends.arrays import on_host
from gpubench.model import Problem
from gpubench.model.precision import F32

EXPONENTS = (*range(6, 15), 16, 18, 20, 24, 30, 40, 48)  # the values of w

SPARE_BITS = 2
"""Number of bits of a sum that large terms do not use. If sums have b bits, the magnitudes of a
row's large terms sum to at most 2^(b − SPARE_BITS), and w is at most b − SPARE_BITS. Spare bits are
needed because tensor cores truncate terms."""

LARGEST_IN_FLOAT32 = 20
"""The largest w of float32 sums. A larger w is not used, because GPUs differ in how tensor cores
add the last bits."""

PATTERNS = 4  # number of random orders of terms for each w
LEAST_DEPTH = 16  # minimum length of a sum that has room for large and small terms
LARGEST_RESULT = 100  # largest result, in units of a small term; bfloat16 must represent it
LEAST_EXPONENT = -6  # exponent of a small term, the smallest normal number of float8_e4m3


@dataclass(frozen=True, kw_only=True, eq=False)
class WidthProbe:
    """Operands whose exact result is known. The sums have large terms that cancel, and small terms.

    The first matrix has the terms, and the second matrix has the signs of the terms.
    """

    problem: Problem
    exponent_of_row: NDArray[np.int64]  # w of each row of the result
    pattern_of_row: NDArray[np.int64]
    terms: NDArray[Any]
    """Terms of each pattern, multiplied by `inner_signs`. The array has the shape (patterns, K) and
    the type of the operands."""

    inner_signs: NDArray[np.int64]  # shape (K,)
    column_signs: NDArray[np.int64]  # shape (N,)
    totals: NDArray[np.float64]  # the result of each pattern, in a column with a positive sign

    def inputs(self) -> tuple[NDArray[Any], ...]:
        """Return the operands of the probe as complete arrays."""
        first = self.terms[self.pattern_of_row]
        columns = np.stack((self.column_signs, -self.column_signs)).astype(first.dtype)
        second = columns[(self.inner_signs < 0).astype(np.int64)]
        if self.problem.operation.first_is_transposed:
            first = np.ascontiguousarray(first.T)
        return first, second.reshape(self.problem.shapes_of_one[1])

    def bits_kept(self, xp: Any, output: Any) -> int | None:
        """Return how many bits the sums keep, or None if they keep all bits that are examined.

        If there are fewer rows than values of w, the sums may keep fewer bits.
        """
        expected = np.multiply.outer(self.totals[self.pattern_of_row], self.column_signs)
        part = output.reshape(expected.shape).astype(np.float64)
        differs = (part != xp.asarray(expected)).astype(np.float64)
        is_wrong = on_host(differs @ xp.ones(expected.shape[1])) > 0  # summed by the BLAS
        narrow = self.exponent_of_row[is_wrong]
        return int(narrow.min()) if narrow.size else None


def extents(problem: Problem) -> tuple[int, int, int]:
    """Return the number of rows, the number of columns and the depth of a product.

    For a chain of products, these are the extents of the last product. All products of a batch have
    the same extents.
    """
    (rows, depth), *_, result = problem.shapes_of_one
    if problem.operation.first_is_transposed:
        rows, depth = depth, rows
    return rows, math.prod(result[1:]), depth


@lru_cache(16)
def make_width_probes(problem: Problem, seed: int) -> tuple[WidthProbe, ...]:
    """Return the probe that shows how many bits the sums of a problem keep.

    No probe is returned for exact sums, for short sums, and for chains of products.
    """
    precision = problem.precision
    rows, columns, depth = extents(problem)
    if problem.operation.is_chain or precision.is_integer or depth < LEAST_DEPTH:
        return ()
    rng, bits = np.random.default_rng(seed), precision.sum_bits
    largest = LARGEST_IN_FLOAT32 if precision.sum_roundoff == F32 else bits - SPARE_BITS
    exponents = [w for w in EXPONENTS if w <= largest]
    patterns = [
        _terms(rng, depth, w, max(2, 2 ** (bits - SPARE_BITS - w)))
        for w in exponents
        for _ in range(PATTERNS)
    ]
    # If there are few rows, the largest exponents are used, which show all narrower sums.
    order = np.arange(len(patterns)).reshape(-1, PATTERNS)[::-1].T.ravel()
    pattern_of_row = rng.permutation(order[np.arange(rows) % len(patterns)])
    inner, outer = (rng.choice((-1, 1), count) for count in (depth, columns))
    unit = 2.0**LEAST_EXPONENT
    probe = WidthProbe(
        problem=problem,
        exponent_of_row=np.repeat(exponents, PATTERNS)[pattern_of_row],
        pattern_of_row=pattern_of_row,
        terms=(unit * np.stack(patterns) * inner).astype(precision.element),
        inner_signs=inner,
        column_signs=outer,
        totals=unit * np.array([terms.sum() for terms in patterns]),
    )
    return (probe,)


def _terms(
    rng: np.random.Generator, depth: int, exponent: int, max_large: int
) -> NDArray[np.float64]:
    """Return random terms. An even number of terms is large, and all other terms are small.

    At most `max_large` terms are large.
    """
    large = 2 * (min(depth // 2, max_large) // 2)
    total = int(rng.integers(1, min(LARGEST_RESULT, depth - large) + 1))
    total += (total - (depth - large)) % 2 * (1 if total == 1 else -1)
    signs = np.where(np.arange(depth - large) < (depth - large + total) // 2, 1.0, -1.0)
    terms = np.empty(depth)
    is_large = np.zeros(depth, bool)
    is_large[rng.permutation(depth)[:large]] = True
    terms[is_large] = 2.0**exponent * (1 - 2 * (np.arange(large) % 2)) * rng.choice((-1, 1))
    terms[~is_large] = rng.permutation(signs)
    return terms
