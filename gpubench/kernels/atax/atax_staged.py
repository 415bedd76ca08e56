from dataclasses import replace

from gpubench.kernels.vectors import STAGED_TILES, on_staged_blocks
from gpubench.model import ITEM_BYTES, Config, CudaVariant, Launch, Problem


def launch(tile: Config, problem: Problem) -> Launch:
    """Launch one block per row, then one per column. `on_staged_blocks` reduces the numbers."""
    first = Launch(
        grid=(problem.m,),
        block=(tile["threads"],),
        workspace_bytes=problem.m * ITEM_BYTES[problem.dtype],
    )
    return replace(
        first, next_launches=(replace(first, grid=(problem.n,), kernel="atax_staged_t"),)
    )


VARIANT = CudaVariant(
    idea="published: gemv_staged, then gemv_t_staged",
    tiles=STAGED_TILES,
    launch=launch,
    specialize=on_staged_blocks,
    reuse=lambda _tile: (1, 1),
)
