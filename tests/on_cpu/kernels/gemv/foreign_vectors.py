from gpubench.model import CudaVariant, Launch, Space

BLOCKS = {"matvec_warp": (4, (128,)), "matvec_block": (1, (256,)), "matvec_strips": (32, (32, 4))}


def launch(tile, problem):
    rows, block = BLOCKS[tile["kernel"]]
    return Launch(grid=(-(-problem.m // rows),), block=block)


VARIANT = CudaVariant(
    idea="matrix times vector in the style of other people's kernels",
    kernel="{kernel}",
    dtypes=("float32",),
    signature="const float *A, const float *x, float *y, int M, int N",
    tiles=Space(
        axes={"edge": (1,), "kernel": tuple(BLOCKS)},
        block=("edge",),
        default=tuple(f"1/kernel={name}" for name in BLOCKS),
    ),
    launch=launch,
    refuse=lambda tile, problem: (
        "needs a multiple of 4 columns"
        if tile["kernel"] == "matvec_strips" and problem.n % 4
        else None
    ),
)
