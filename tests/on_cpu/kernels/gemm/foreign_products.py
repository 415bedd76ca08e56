from gpubench.model import CudaVariant, Space

BLOCKS = {
    "mysgemm_v1": ((32, 8), (256,)),
    "mysgemm_float2": ((64, 4), (32, 4)),
    "mysgemm_tiled": ((32, 32), (32, 32)),
    "mysgemm_v7": ((128, 128), (256,)),
}


def launch(tile, problem):
    from gpubench.model import Launch

    (columns, rows), block = BLOCKS[tile["kernel"]]
    return Launch(grid=(-(-problem.n // columns), -(-problem.m // rows)), block=block)


def refuse(tile, problem):
    multiples = {"mysgemm_v7": (128, 128, 8), "mysgemm_float2": (1, 2, 1)}.get(tile["kernel"], ())
    extents = (problem.m, problem.n, problem.k)
    fits = all(extent % multiple == 0 for extent, multiple in zip(extents, multiples, strict=False))
    return None if fits else f"needs multiples of {multiples}"


VARIANT = CudaVariant(
    idea="products in the style of other people's kernels",
    kernel="{kernel}",
    dtypes=("float32",),
    signature="int M, int N, int K, float *A, float *B, float *C",
    tiles=Space(
        axes={"edge": (1,), "kernel": tuple(BLOCKS)},
        block=("edge",),
        default=tuple(f"1/kernel={name}" for name in BLOCKS),
    ),
    launch=launch,
    refuse=refuse,
)
