"""A plain product in Gluon, launched in torch's current stream, which is the timed stream."""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from gpubench.model import CallVariant


@gluon.jit
def product(a, b, c, m, n, k, edge: gl.constexpr):
    tile: gl.constexpr = gl.BlockedLayout([4, 4], [4, 8], [2, 2], [1, 0])
    rows = gl.program_id(0) * edge + gl.arange(0, edge, layout=gl.SliceLayout(1, tile))
    columns = gl.program_id(1) * edge + gl.arange(0, edge, layout=gl.SliceLayout(0, tile))
    sums = gl.zeros([edge, edge], gl.float32, tile)
    for i in range(k):
        left = gl.load(a + rows * k + i, mask=rows < m, other=0.0)
        right = gl.load(b + i * n + columns, mask=columns < n, other=0.0)
        sums += left[:, None] * right[None, :]
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    gl.store(c + rows[:, None] * n + columns[None, :], sums, mask=mask)


def multiply(a, b, c):
    (m, k), n = a.shape, b.shape[1]
    product[triton.cdiv(m, 64), triton.cdiv(n, 64)](a, b, c, m, n, k, edge=64, num_warps=4)


VARIANT = CallVariant(
    idea="a tile of C for each program of Gluon", runs_on="cuda", dtypes=("float32",),
    build=lambda _tile, _dtype: multiply, tensors="torch", libraries=("triton", "torch"),
    baseline="cublas",
)  # fmt: skip
