from collections.abc import Callable
from typing import Any

from gpubench.model import CallVariant


def build(_tile: object, _dtype: str) -> Callable[..., None]:
    import numba

    @numba.njit
    def total(x: Any, s: Any) -> None:
        first = second = third = fourth = 0.0
        for at in range(0, len(x) - 3, 4):  # the fault: up to three last elements are left out
            first += x[at]
            second += x[at + 1]
            third += x[at + 2]
            fourth += x[at + 3]
        s[0] = first + second + (third + fourth)

    return total  # type: ignore[no-any-return]


VARIANT = CallVariant(
    idea="four sums at once: wrong unless four divides N",
    runs_on="cpu",
    dtypes=("float32",),
    threads=1,
    build=build,
    baseline="total_numpy",
)
