from collections.abc import Callable
from typing import Any

from gpubench.model import CallVariant


def build(_tile: object, _dtype: str) -> Callable[..., None]:
    import numba

    @numba.njit
    def total(x: Any, s: Any) -> None:
        sums = 0.0
        for value in x:
            sums += value
        s[0] = sums

    return total  # type: ignore[no-any-return]


VARIANT = CallVariant(
    idea="a loop, with the sum in float64",
    runs_on="cpu",
    dtypes=("float32",),
    threads=1,
    build=build,
    baseline="total_numpy",
)
