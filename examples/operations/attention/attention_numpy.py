import numpy as np

from gpubench.model import CallVariant


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray) -> None:
    scores = q @ k.T / np.float32(q.shape[1] ** 0.5)
    scores[~np.tri(len(q), dtype=bool)] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    np.matmul(scores, v, out=o)


VARIANT = CallVariant(
    idea="two products and a softmax, the baseline",
    runs_on="cpu",
    dtypes=("float32",),
    threads=1,
    build=lambda _tile, _dtype: attention,
    baseline="attention_numpy",
)
