"""`dmma` with small tiles, and K in parts by the blocks of a cluster."""

from gpubench.kernels.fitted_tile import MAX_CLUSTER
from gpubench.kernels.tensor_cores import (
    MAX_DYNAMIC_BYTES,
    cluster,
    clusters,
    operand_maps,
    stages_bytes,
    variant,
)
from gpubench.model import Config, Launch, Problem, Space

BYTES = 8
"""Bytes of an element."""

MAX_OF_FOUR_WARPS = 96 * 64
"""Elements of a tile up to which four warps multiply, and eight above."""

PADDING_BYTES = 32
"""Of a row of sums, as in the source."""


def warps(tile: Config) -> int:
    """Return the number of warps that multiply."""
    return 4 if tile["BM"] * tile["BN"] <= MAX_OF_FOUR_WARPS else 8


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, and later of sums for the other parts."""
    sums = tile["BM"] * (tile["BN"] * BYTES + PADDING_BYTES) if tile["splits"] > 1 else 0
    return int(max(stages_bytes(tile, BYTES), sums))


def why_not(tile: Config) -> str | None:
    """Return why a block cannot have a tile, or a cluster cannot have its blocks, or None."""
    rows, columns = cluster(tile)
    if (blocks := rows * columns * tile["splits"]) > MAX_CLUSTER:
        return f"{tile}: {blocks} blocks in a cluster, over {MAX_CLUSTER}"
    if (needed := shared_bytes(tile)) > MAX_DYNAMIC_BYTES:
        return f"{tile}: {needed} bytes of shared memory, over {MAX_DYNAMIC_BYTES}"
    if warps(tile) > 4 and tile["BM"] % 32 and tile["BN"] % 64:  # noqa: PLR2004
        return f"{tile}: eight warps take rows by 32, or columns by 64"
    return None


def launches(tile: Config, problem: Problem, _multiprocessors: int) -> Launch:
    """Return a launch of one block per tile and part of K."""
    rows, columns = cluster(tile)
    blocks = rows * columns * tile["splits"]
    return Launch(
        grid=(blocks * clusters(tile, problem),),
        block=(32 * warps(tile) + 128,),
        shared_bytes=shared_bytes(tile),
        tensor_maps=operand_maps(tile, problem),
        cluster=(blocks, 1, 1),
        pdl=True,
    )


VARIANT = variant(
    idea="float64 for any shape: small tiles, and K in parts by the blocks of a cluster",
    after="dmma",
    dtypes=("float64",),
    tiles=Space(
        axes={
            "BM": range(32, 129, 16),
            "BN": (32, 64, 96, 128),
            "BK": (32,),
            "stages": (2, 3, 4, 5, 6),
            "splits": range(1, 9),
            "cluster": ("1x1", "1x2", "2x1"),
        },
        block=("BM", "BN", "BK"),
        default=(
            "64x64x32/s3/k2/cluster=1x1",
            "96x64x32/s5/k4/cluster=1x1",
            "128x128x32/s3/k1/cluster=1x2",
        ),
        constraint=why_not,
    ),
    launches=launches,
)
