"""Small tiles in one launch, and K in parts by the blocks of a cluster."""

from gpubench.kernels.block_tiles import (
    blocks,
    padded_stages_bytes,
    rows_and_columns,
    threads_of,
    tiles_of_c,
    warps_that_fit,
)
from gpubench.kernels.fitted_tile import MAX_CLUSTER
from gpubench.model import Config, CudaVariant, Launch, Problem

BYTES = 4
"""Bytes of an element: float32 and int32."""

CHUNK = 8
"""Values of k between two requests for copies, as in `interleaved_product.cuh`."""


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, and later of sums, or of scratch for results."""
    bm, bn, tn = tile.numbers("BM", "BN", "TN")
    scratch = threads_of(tile) // 32 * (16 * 8 * tn + 4)
    after = bm * bn if tile["splits"] > 1 else scratch
    return max(padded_stages_bytes(tile), BYTES * after)


def together(tile: Config) -> str | None:
    """Require whole warps, room for the stages, and the same copies for each thread and chunk."""
    if reason := warps_that_fit(shared_bytes)(tile):
        return reason
    bm, bn, bk = tile.numbers("BM", "BN", "BK")
    threads, chunks = threads_of(tile), bk // CHUNK
    if bm % (threads // 8 * chunks) or threads % (bn // 4) or bk % (threads * 4 // bn * chunks):
        return f"{tile}: {threads} threads do not share its copies equally"
    return None


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch SPLITS blocks per tile of C, a cluster of them."""
    splits = tile["splits"]
    return Launch(
        kernel="splitk_cluster_unaligned" if problem.n % 4 else "",
        grid=(splits * tiles_of_c(tile, problem),),
        block=(threads_of(tile),),
        shared_bytes=shared_bytes(tile),
        cluster=(splits, 1, 1),
        pdl=True,
    )


VARIANT = CudaVariant(
    idea="small tiles in one launch, and K in parts by the blocks of a cluster",
    after="splitk",
    dtypes=("float32", "int32"),
    capability=(9, 0),
    tiles=blocks(
        rows=(32, 48, 64, 96, 128),
        columns=(32, 64, 128),
        depths=(16, 32),
        threads=("4x4", "8x4", "4x8", "8x8", "12x8", "16x8"),
        stages=(2, 3, 4),
        splits=range(1, MAX_CLUSTER + 1),
        default=(
            "32x64x32/4x8/s3/k4",
            "64x64x32/8x8/s3/k4",
            "96x64x16/12x8/s4/k2",
            "128x64x32/8x8/s3/k1",
        ),
        together=together,
    ),
    launch=launch,
    reuse=rows_and_columns,
)
