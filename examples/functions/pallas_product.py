"""A product in Pallas, for extents that are powers of two. Use `--launches waited`."""

from gpubench.model import CallVariant


def build(_tile, _dtype, interpret=False):
    import jax
    from jax.experimental import pallas

    def multiply(a, b):
        (m, k), n, spec = a.shape, b.shape[1], pallas.BlockSpec
        x, y, depth = (min(each, 32) for each in (m, n, k))  # larger tiles exceed the shared memory

        def product(a, b, c):
            def add(step, total):
                part = pallas.ds(step * depth, depth)
                return total + jax.numpy.dot(a[:, part], b[part, :], precision="highest")

            c[...] = jax.lax.fori_loop(0, k // depth, add, jax.numpy.zeros((x, y), a.dtype))

        operands = [spec((x, k), lambda i, _j: (i, 0)), spec((k, y), lambda _i, j: (0, j))]
        specs = {"in_specs": operands, "out_specs": spec((x, y), lambda i, j: (i, j))}
        specs |= {"grid": (m // x, n // y), "interpret": interpret}
        return pallas.pallas_call(product, jax.ShapeDtypeStruct((m, n), a.dtype), **specs)(a, b)

    return jax.jit(multiply)


def refuse(_tile, problem):
    powers = all(each & (each - 1) == 0 for each in (problem.m, problem.n, problem.k))
    return None if powers else "takes powers of two only"


VARIANT = CallVariant(
    idea="a tile of C for each program of Pallas", runs_on="cuda", dtypes=("float32",),
    build=build, refuse=refuse, returns=True, tensors="jax.numpy", libraries=("jax",),
)  # fmt: skip
