"""The published pair: gemv_staged, then gemv_t_staged."""

from dataclasses import replace

from gpubench.kernels.staged import STAGED_TILES, staged_blocks
from gpubench.model import ITEM_BYTES, Config, CudaVariant, Gpu, Launch, Problem


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch one block per row, then one per column. `specialize` reduces the numbers."""
    first = Launch(
        grid=(problem.m,),
        block=(tile["threads"],),
        workspace_bytes=problem.m * ITEM_BYTES[problem.dtype],
    )
    return replace(
        first, next_launches=(replace(first, grid=(problem.n,), kernel="atax_staged_t"),)
    )


def specialize(launch: Launch, tile: Config, problem: Problem, gpu: Gpu) -> Launch:
    """Each block computes equally many consecutive rows, then columns."""
    threads = tile["threads"]
    (second,) = launch.next_launches
    return replace(
        launch,
        grid=(staged_blocks(problem.m, threads, gpu),),
        next_launches=(replace(second, grid=(staged_blocks(problem.n, threads, gpu),)),),
    )


VARIANT = CudaVariant(
    idea="published: gemv_staged, then gemv_t_staged",
    tiles=STAGED_TILES,
    launch=launch,
    specialize=specialize,
    reuse=lambda _tile: (1, 1),
)
