"""The CPU's shared_tile: operands staged through scratch memory, EDGE×EDGE of C at a time.

What the GPU's block does with shared memory, one thread does with scratch arrays that stay in
its L1 and L2 caches: B's current EDGE columns are copied once into a contiguous panel, A's tiles
pass through a scratch tile, and each tile of C is summed in scratch and written once. The
edge is a constant of the compiled instance, so the inner loops have constant trip counts and the
compiler keeps rows of the accumulator in vector registers.
"""

from collections.abc import Callable
from functools import partial

from gpubench.model import LAYOUTS, CallVariant, Config, edges

VECTOR = 8
"""Number of float32 elements in a vector of AVX. Rows of scratch are padded to whole vectors."""

MIN_WIDTH = 16
"""Minimum number of elements in a padded row. With shorter rows, LLVM unrolls both inner loops and
vectorises neither (0.46 s instead of 0.18 s at 1024 with an edge of 8)."""

MIN_PADDED_EDGE = 4
"""Smallest edge whose rows are padded. With smaller edges, the products of the padding cost more
than the padding saves."""

MAX_UNROLLED_EDGE = 48
"""Largest edge whose sum over k is the innermost loop, which LLVM unrolls. At larger edges LLVM
does not unroll it (0.1 s at 48, 0.8 s at 64), so the kernel updates a row of C for each k."""


def build(
    tile: Config | None, dtype: str, *, parallel: bool = False, strided: bool = False
) -> Callable[..., None]:
    """Return the product for this edge. If `parallel`, threads share the columns of blocks.

    With `strided`, A and B may have any strides. Both are copied into scratch anyway.
    """
    import numba
    import numpy as np

    # Unsigned indices need no test for negative indices. Numba turns their sum with a signed index
    # into a float.
    unsigned = np.uintp
    edge = tile["edge"] if tile else 1
    padded = max(MIN_WIDTH, -(-edge // VECTOR) * VECTOR) if edge >= MIN_PADDED_EDGE else edge
    unit, t, width = unsigned(1), unsigned(edge), unsigned(padded)
    is_unrolled = edge <= MAX_UNROLLED_EDGE

    def tiled(a, b, c):  # type: ignore[no-untyped-def] # Numba infers the types
        # Numba's cache distinguishes instances by the constants that they use, not by `parallel=`.
        _ = parallel
        m, n, k_end = unsigned(a.shape[0]), unsigned(b.shape[1]), unsigned(a.shape[1])
        for block in numba.prange((n + t - unit) // t):
            j0 = unsigned(block) * t
            columns = min(t, n - j0)
            panel = np.zeros(((k_end + t - unit) // t * t, width), b.dtype)
            a_tile = np.zeros((t, t), a.dtype)
            c_tile = np.zeros((t, width), c.dtype)
            for k in range(k_end):
                for j in range(columns):
                    panel[k, j] = b[k, j0 + j]
            for i0 in range(unsigned(0), m, t):
                rows = min(t, m - i0)
                c_tile[:] = 0
                for k0 in range(unsigned(0), k_end, t):
                    depth = min(t, k_end - k0)
                    if rows == t and depth == t:  # constant trip counts
                        for i in range(t):
                            for k in range(t):
                                a_tile[i, k] = a[i0 + i, k0 + k]
                    else:
                        for i in range(t):
                            for k in range(t):
                                inside = i < rows and k < depth
                                a_tile[i, k] = a[i0 + i, k0 + k] if inside else 0
                    b_tile = panel[k0 : k0 + t]
                    if is_unrolled:
                        for i in range(t):
                            for j in range(width):
                                total = c_tile[i, j]
                                for k in range(t):
                                    total += a_tile[i, k] * b_tile[k, j]
                                c_tile[i, j] = total
                    else:
                        for i in range(t):
                            for k in range(t):
                                for j in range(width):
                                    c_tile[i, j] += a_tile[i, k] * b_tile[k, j]
                for i in range(rows):
                    for j in range(columns):
                        c[i0 + i, j0 + j] = c_tile[i, j]

    matrix = numba.from_dtype(np.dtype(dtype))[:, ::1]
    operand = numba.from_dtype(np.dtype(dtype))[:, :] if strided else matrix
    compiled: Callable[..., None] = numba.njit(
        (operand, operand, matrix),
        cache=True,
        parallel=parallel,
        fastmath={"contract"},  # multiply-adds may be fused, sums are not reordered
        error_model="numpy",
    )(tiled)
    return compiled


VARIANT = CallVariant(
    idea="tiles of A and B copied into scratch, one thread: shared_tile on a CPU",
    tiles=edges(
        1,
        256,
        because="larger scratch tiles outgrow the L2 cache",
        default=(4, 8, 16, 32),  # 1 and 2 take longest, and reuse little
    ),
    runs_on="cpu",
    build=build,
    build_strided=partial(build, strided=True),
    layouts=tuple(LAYOUTS),
    threads=1,
    baseline="cpu_blas",
)
