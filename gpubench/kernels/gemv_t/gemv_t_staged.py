"""The published transposed kernel: x in shared memory part by part, a tree for each column."""

from dataclasses import replace

from gpubench.kernels.staged import STAGED_TILES, staged_blocks
from gpubench.model import Config, CudaVariant, Gpu, Launch, Problem


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch one block per column. `specialize` reduces the number."""
    return Launch(grid=(problem.n,), block=(tile["threads"],))


def specialize(launch: Launch, tile: Config, problem: Problem, gpu: Gpu) -> Launch:
    """Launch blocks with an equal number of consecutive columns."""
    return replace(launch, grid=(staged_blocks(problem.n, tile["threads"], gpu),))


VARIANT = CudaVariant(
    idea="published: gemv_staged on columns, whose elements lie N apart",
    tiles=STAGED_TILES,
    launch=launch,
    specialize=specialize,
    reuse=lambda _tile: (1, 1),
)
