import numpy as np

from gpubench.model import CallVariant


def softmax(x: np.ndarray, y: np.ndarray) -> None:
    np.subtract(x, x.max(axis=1, keepdims=True), out=y)
    np.exp(y, out=y)
    y /= y.sum(axis=1, keepdims=True)


VARIANT = CallVariant(
    idea="four calls of NumPy, the baseline",
    runs_on="cpu",
    dtypes=("float32",),
    threads=1,
    build=lambda _tile, _dtype: softmax,
    baseline="softmax_numpy",
)
