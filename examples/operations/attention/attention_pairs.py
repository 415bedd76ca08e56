from collections.abc import Callable
from typing import Any

from gpubench.model import CallVariant


def build(_tile: object, _dtype: str) -> Callable[..., None]:
    import numba
    import numpy as np

    @numba.njit
    def attention(q: Any, k: Any, v: Any, o: Any) -> None:
        rows, width = q.shape
        scale = 1 / np.sqrt(width)
        for row in range(rows // 2 * 2):  # the fault: the last of an odd number of rows is left out
            highest, total = -np.inf, 0.0
            sums = np.zeros(width)
            for other in range(row + 1):
                score = 0.0
                for column in range(width):
                    score += q[row, column] * k[other, column]
                score *= scale
                if score > highest:  # the sums so far are relative to a lower maximum
                    sums *= np.exp(highest - score)
                    total *= np.exp(highest - score)
                    highest = score
                power = np.exp(score - highest)
                total += power
                for column in range(width):
                    sums[column] += power * v[other, column]
            o[row] = sums / total

    return attention  # type: ignore[no-any-return]


VARIANT = CallVariant(
    idea="pairs of rows: wrong for an odd number of rows",
    runs_on="cpu",
    dtypes=("float32",),
    threads=1,
    build=build,
    baseline="attention_numpy",
)
