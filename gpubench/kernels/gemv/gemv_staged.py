"""The published kernel: x staged through shared memory, a tree for each row."""

from dataclasses import replace

from gpubench.kernels.staged import STAGED_TILES, staged_blocks
from gpubench.model import CudaVariant, Gpu, Launch, Problem, Tile


def launch(tile: Tile, problem: Problem) -> Launch:
    """One block a row: `specialize` makes them fewer."""
    return Launch(grid=(problem.m,), block=(tile.block[0],))


def specialize(launch: Launch, tile: Tile, problem: Problem, gpu: Gpu) -> Launch:
    """Each block computes equally many consecutive rows."""
    return replace(launch, grid=(staged_blocks(problem.m, tile.block[0], gpu),))


VARIANT = CudaVariant(
    idea="published: x in shared memory part by part, a tree for each row",
    tiles=STAGED_TILES,
    launch=launch,
    specialize=specialize,
    reuse=lambda _tile: (1, 1),
)
