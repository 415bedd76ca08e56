"""Describes which elements of a result are wrong."""

import re
from collections.abc import Iterator

import numpy as np

from gpubench.engine.judge.verify import is_unwritten, never_written, poison
from gpubench.model import Variant
from gpubench.model.sources import read_source
from gpubench.on_cpu.case import Case, differs
from gpubench.on_cpu.unit import masked


def why_wrong(
    output: np.ndarray, right: np.ndarray, allowed: np.ndarray | float, variant: Variant
) -> str:
    """Return a text on what is wrong in the output, or an empty text if nothing is wrong.

    An element is wrong if its error exceeds `allowed`.
    """
    differing = np.argwhere(differs(output, right, allowed))
    if not len(differing):
        return ""
    if is_unwritten(np, output) and _unwritten(output, variant).all():
        return never_written(np, output, variant)
    place = tuple(map(int, differing[0]))
    if np.array_equal(output.ravel(), right.T.ravel()):
        return "the result is transposed: are the indices of the store exchanged?"
    verb = "is" if len(differing) == 1 else "are"
    count = f"{len(differing)} of {right.size} elements {verb} wrong"
    return f"{count}, the first at {list(place)}: {_what(output, right, variant, place)}"


def stores_of_result(case: Case) -> Iterator[tuple[str, int]]:
    """Yield the file and line of each assignment to an element of the result."""
    name = case.array_names[len(case.problem.operation.arrays) - 1]
    store = re.compile(rf"\b{name}\s*\[[^;]*?\]\s*[+-]?=(?!=)")
    for path in case.variant.sources:
        if path.suffix != ".py":
            plain = masked(read_source(path))
            for match in store.finditer(plain):
                yield path.name, plain.count("\n", 0, match.start()) + 1


def _what(output: np.ndarray, right: np.ndarray, variant: Variant, place: tuple[int, ...]) -> str:
    if _unwritten(output, variant)[place]:
        return "unchanged by the launch; does the grid cover this element?"
    if np.isnan(output[place].astype(np.float64)):
        return "NaN: does the sum read shared memory that no thread has written?"
    return f"{output[place]}, not {right[place]}"


def _unwritten(output: np.ndarray, variant: Variant) -> np.ndarray:
    """Return an array that is true where elements have the bits that they had before the launch."""
    before = np.empty_like(output)
    poison(before, reads_output=variant.reads_output)
    bits = f"u{output.itemsize}"
    same: np.ndarray = np.ascontiguousarray(output).view(bits) == before.view(bits)
    return same & (not variant.reads_output)
