"""A plain product in Triton, launched in torch's current stream, which is the timed stream."""

import triton
import triton.language as tl

from gpubench.model import CallVariant


@triton.jit
def product(a, b, c, m, n, k, edge: tl.constexpr, depth: tl.constexpr):
    rows = tl.program_id(0) * edge + tl.arange(0, edge)[:, None]
    columns = tl.program_id(1) * edge + tl.arange(0, edge)[None, :]
    sums = tl.zeros((edge, edge), dtype=tl.float32)
    for start in range(0, k, depth):
        across, down = start + tl.arange(0, depth)[None, :], start + tl.arange(0, depth)[:, None]
        left = tl.load(a + rows * k + across, mask=(rows < m) & (across < k), other=0.0)
        right = tl.load(b + down * n + columns, mask=(down < k) & (columns < n), other=0.0)
        sums = tl.dot(left, right, sums, input_precision="ieee")
    tl.store(c + rows * n + columns, sums, mask=(rows < m) & (columns < n))


def multiply(a, b, c):
    (m, k), n = a.shape, b.shape[1]
    product[triton.cdiv(m, 64), triton.cdiv(n, 64)](a, b, c, m, n, k, edge=64, depth=32)


VARIANT = CallVariant(
    idea="a tile of C for each program of Triton", runs_on="cuda", dtypes=("float32",),
    build=lambda _tile, _dtype: multiply, tensors="torch", libraries=("triton", "torch"),
    baseline="cublas",
)  # fmt: skip
