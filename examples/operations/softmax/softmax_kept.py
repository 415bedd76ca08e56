import numpy as np

from gpubench.model import CallVariant

KEPT: dict[int, np.ndarray] = {}


def softmax(x: np.ndarray, y: np.ndarray) -> None:
    if x.ctypes.data not in KEPT:
        powers = np.exp(x - x.max(axis=1, keepdims=True))
        KEPT[x.ctypes.data] = powers / powers.sum(axis=1, keepdims=True)
    y[...] = KEPT[x.ctypes.data]


VARIANT = CallVariant(
    idea="a cheat: it keeps the result of operands by their address",
    runs_on="cpu",
    dtypes=("float32",),
    threads=1,
    build=lambda _tile, _dtype: softmax,
    baseline="softmax_numpy",
)
