"""The published kernel: x in shared memory part by part, and a tree for each row."""

from dataclasses import replace

from gpubench.kernels.staged import STAGED_TILES, staged_blocks
from gpubench.model import Config, CudaVariant, Gpu, Launch, Problem


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch one block per row. `specialize` reduces the number."""
    return Launch(grid=(problem.m,), block=(tile["threads"],))


def specialize(launch: Launch, tile: Config, problem: Problem, gpu: Gpu) -> Launch:
    """Launch blocks with an equal number of consecutive rows."""
    return replace(launch, grid=(staged_blocks(problem.m, tile["threads"], gpu),))


VARIANT = CudaVariant(
    idea="published: x in shared memory part by part, a tree for each row",
    tiles=STAGED_TILES,
    launch=launch,
    specialize=specialize,
    reuse=lambda _tile: (1, 1),
)
