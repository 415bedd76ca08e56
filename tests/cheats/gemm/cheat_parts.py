"""A function that cheats: its library adds in float32, but it adds parts of K in 16 bits."""

from gpubench.model import CallVariant

PART = 128


def in_parts(a, b, c):
    """Adds the products of 128 values of k at a time to a result of 16 bits."""
    c[...] = 0
    for k in range(0, a.shape[1], PART):
        c += a[:, k : k + PART] @ b[k : k + PART]


VARIANT = CallVariant(
    idea="a function that adds parts of K in 16 bits",
    runs_on="cuda",
    dtypes=("float16",),
    build=lambda _tile, _dtype: in_parts,
)
