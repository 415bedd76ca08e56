from dataclasses import replace

from gpubench.kernels.block_tiles import blocks, threads_of, tiles_of_c, variant, warps_that_fit
from gpubench.model import Config, Launch, Problem, TensorMap

BYTES = 4
"""Bytes of an element: float32 and int32."""

STATIC = 256
"""At least the bytes of shared memory of the stages' mbarriers."""

B, WORKSPACE = 1, 3
"""Indices of the kernel's arrays."""


def shared_bytes(tile: Config) -> int:
    """Return the dynamic shared memory: the stages, which are also the scratch for results."""
    bm, bn, bk, stages = tile.numbers("BM", "BN", "BK", "stages")
    return BYTES * stages * bk * (bm + bn)


def pack_and_multiply(
    tile: Config,
    problem: Problem,
    product: Launch,
    *,
    elements_before: int = 0,
    elements_after: int = 0,
) -> Launch:
    """Launch the packing, with a block per tile of A and per row of a copied B, then the product.

    The product gets its tensor map of B. The workspace holds `elements_before`, A's panels, the
    copy of B, and `elements_after`.
    """
    bm, bn, bk = tile.numbers("BM", "BN", "BK")
    m, n, k = problem.m, problem.n, problem.k
    tiles_of_a = -(-m // bm) * -(-k // bk)
    rows_of_b = k if n % 4 else 0
    row = -(-n // 4) * 4
    b_copy = elements_before + tiles_of_a * bm * bk
    b_map = TensorMap(
        array=WORKSPACE if rows_of_b else B,
        offset_bytes=BYTES * b_copy if rows_of_b else 0,
        shape=(k, row),
        box=(bk, bn),
    )
    return Launch(
        kernel="pack",
        grid=(tiles_of_a + rows_of_b,),
        block=(256,),
        workspace_bytes=BYTES * (b_copy + rows_of_b * row + elements_after),
        next_launches=(replace(product, tensor_maps=(b_map,)),),
    )


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch the packing, then the product with a block per tile of C."""
    product = Launch(
        grid=(tiles_of_c(tile, problem),),
        block=(threads_of(tile),),
        shared_bytes=shared_bytes(tile),
    )
    return pack_and_multiply(tile, problem, product)


VARIANT = variant(
    idea="one thread requests tiles from the TMA: no copy instructions, long steps, few barriers",
    after="packed_a",
    dtypes=("float32", "int32"),
    capability=(9, 0),
    tiles=blocks(
        rows=(128,),
        columns=(128, 256),
        depths=(32, 64),
        threads=("16x8",),
        stages=(2,),
        default=("128x256x64/16x8/s2",),
        together=warps_that_fit(lambda tile: shared_bytes(tile) + STATIC),
    ),
    launch=launch,
)
