"""TF32 with rows of a tile by 16, and K in parts by the blocks of a cluster."""

from gpubench.kernels.fitted_tile import MAX_CLUSTER, SUM_BYTES, TF32
from gpubench.kernels.gemm.wgmma_tf32 import threads
from gpubench.kernels.padded_rows import on_padded_rows, takes_any_rows
from gpubench.kernels.tensor_cores import (
    MAX_DYNAMIC_BYTES,
    cluster,
    clusters,
    operand_maps,
    stages_bytes,
    variant,
)
from gpubench.kernels.tile_costs import Picks
from gpubench.model import Config, Launch, Problem, Space

PADDING_BYTES = 16
"""Of a row of sums, as in the source."""


def shared_bytes(tile: Config) -> int:
    """Return the shared memory of the stages, and later of sums for the other parts."""
    row = tile["BN"] * SUM_BYTES + PADDING_BYTES
    return int(max(stages_bytes(tile, 4), tile["BM"] * row if tile["splits"] > 1 else 0))


def why_not(tile: Config) -> str | None:
    """Return why a block cannot have a tile, or a cluster cannot have its blocks, or None."""
    rows, columns = cluster(tile)
    if (blocks := rows * columns * tile["splits"]) > MAX_CLUSTER:
        return f"{tile}: {blocks} blocks in a cluster, over {MAX_CLUSTER}"
    if (needed := shared_bytes(tile)) > MAX_DYNAMIC_BYTES:
        return f"{tile}: {needed} bytes of shared memory, over {MAX_DYNAMIC_BYTES}"
    return None


def launches(tile: Config, problem: Problem, _multiprocessors: int) -> Launch:
    """Return a launch of one block per tile and part of K, after copies of rows if needed."""
    rows, columns = cluster(tile)
    blocks = rows * columns * tile["splits"]
    product = Launch(
        grid=(blocks * clusters(tile, problem),),
        block=(threads(tile),),
        shared_bytes=shared_bytes(tile),
        tensor_maps=operand_maps(tile, problem),
        cluster=(blocks, 1, 1),
        pdl=True,
    )
    return on_padded_rows(product, problem)


VARIANT = variant(
    idea="TF32 for any shape: rows of a tile by 16, and K in parts by the blocks of a cluster",
    after="wgmma_tf32",
    dtypes=TF32.dtypes,
    tiles=Space(
        axes={
            "BM": TF32.rows,
            "BN": TF32.columns,
            "BK": (TF32.step,),
            "stages": range(2, 9),
            "splits": TF32.splits,
            "cluster": TF32.clusters,
        },
        block=("BM", "BN", "BK"),
        default=(
            "64x128x32/s8/k1/cluster=1x1",
            "128x64x32/s8/k4/cluster=1x1",
            "192x128x32/s5/k2/cluster=1x1",
        ),
        constraint=why_not,
    ),
    launches=launches,
    refuse=takes_any_rows,
    auto_tiles=Picks(TF32),
)
