"""A product in Pallas, at powers of two. Use `--launches waited`, as for `jax_matmul`."""

from gpubench.model import CallVariant


def build(_tile, _dtype, interpret=False):
    import jax
    from jax.experimental import pallas

    def product(a, b, c):
        c[...] = jax.numpy.dot(a[...], b[...], precision="highest")

    def multiply(a, b):
        (m, k), n = a.shape, b.shape[1]
        x, y = min(m, 32), min(n, 32)
        left = pallas.BlockSpec((x, k), lambda i, _j: (i, 0))
        right = pallas.BlockSpec((k, y), lambda _i, j: (0, j))
        result = pallas.BlockSpec((x, y), lambda i, j: (i, j))
        shape = jax.ShapeDtypeStruct((m, n), a.dtype)
        grid, specs = (m // x, n // y), {"in_specs": [left, right], "out_specs": result}
        return pallas.pallas_call(product, shape, grid=grid, interpret=interpret, **specs)(a, b)

    return jax.jit(multiply)


def refuse(_tile, problem):
    powers = all(each & (each - 1) == 0 for each in (problem.m, problem.n, problem.k))
    return None if powers else "takes powers of two only"


VARIANT = CallVariant(
    idea="a tile of C for each program of Pallas", runs_on="cuda", dtypes=("float32",),
    build=build, refuse=refuse, returns=True, tensors="jax.numpy", libraries=("jax",),
)  # fmt: skip
