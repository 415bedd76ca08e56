import numpy as np

from gpubench.model import CallVariant


def total(x: np.ndarray, s: np.ndarray) -> None:
    np.sum(x, keepdims=True, out=s)


VARIANT = CallVariant(
    idea="NumPy's sum, in pairs, the baseline",
    runs_on="cpu",
    dtypes=("float32",),
    threads=1,
    build=lambda _tile, _dtype: total,
    baseline="total_numpy",
)
