"""Lists the plausible guesses about a function, beside the guess that its source suggests."""

from collections.abc import Callable, Iterator
from itertools import product

from gpubench.plan.description_text import Description

GRID = "blockIdx.x counts rows of C"
WARPS = "each warp computes one element"
EXTENTS = "M and N are exchanged"
ROW_MAJOR = "all matrices are row-major"


def alternatives(
    first: Description, describe: Callable[..., Description]
) -> Iterator[tuple[Description, str]]:
    """Yield descriptions with other guesses than `first`, and texts on the other guesses.

    Descriptions with a column-major C are left out: with such a C, a kernel would become right that
    exchanges the indices of its store by mistake.
    """
    texts = {first.text}
    for guesses in product(("", GRID, WARPS), ("", EXTENTS, ROW_MAJOR)):
        other = describe(exchanged=guesses, column_major=() if ROW_MAJOR in guesses else None)
        if "C" not in other.column_major and other.text not in texts:
            texts.add(other.text)
            yield other, ", and ".join(filter(None, guesses))
