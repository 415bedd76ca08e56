from collections.abc import Callable
from typing import Any

from gpubench.model import CallVariant


def build(_tile: object, _dtype: str) -> Callable[..., None]:
    import numba
    import numpy as np

    @numba.njit
    def softmax(x: Any, y: Any) -> None:
        for row in range(x.shape[0]):
            highest = x[row].max()
            total = 0.0
            for pair in range(x.shape[1] // 2):  # the fault: an odd last column is left out
                for column in (2 * pair, 2 * pair + 1):
                    y[row, column] = np.exp(x[row, column] - highest)
                    total += y[row, column]
            y[row] /= total

    return softmax  # type: ignore[no-any-return]


VARIANT = CallVariant(
    idea="two columns at a time: wrong for an odd number of columns",
    runs_on="cpu",
    dtypes=("float32",),
    threads=1,
    build=build,
    baseline="softmax_numpy",
)
