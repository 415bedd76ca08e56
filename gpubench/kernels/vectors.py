"""Tiles and launches of the kernels that multiply a matrix with a vector."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from gpubench.model import ITEM_BYTES, Config, CudaVariant, Gpu, Launch, Problem, Space

THREADS = (32, 64, 128, 256, 512, 1024)
"""Threads of a block: whole warps, and a power of two for reductions in a tree."""

SLAB_ROWS = (32, 64, 128, 256, 512, 1024)
"""Rows that one block adds up, if several blocks add up a column."""

SUM_COLUMNS, SUM_GROUPS = 32, 16
"""Columns and groups of threads of a block that adds up parts, as in `partial_sums.cuh`."""

MAX_SHARED = 6144  # maximum number of 8-byte elements in 48 KB of shared memory


def tile_grid(
    axes: Mapping[str, Sequence[int]],
    default: tuple[str, ...],
    refuse: Callable[[Config], str | None] | None = None,
) -> Space:
    """Return the space of tiles `AxBxC` with a number for each axis.

    `refuse` returns why a combination is illegal, or None.
    """
    return Space(axes=axes, block=tuple(axes), default=default, constraint=refuse)


variant = partial(CudaVariant, block="threads", reuse=lambda _tile: (1, 1))
"""Returns a kernel whose blocks have the threads of the tile, and whose loads nothing shares."""


def sum_launch(kernel: str, columns: int, *int_arguments: int) -> Launch:
    """Launch a template of the variant's source that adds up parts of `columns` elements each."""
    return Launch(
        grid=(-(-columns // SUM_COLUMNS),),
        block=(SUM_COLUMNS, SUM_GROUPS),
        kernel=kernel,
        int_arguments=int_arguments,
    )


def slab_launch(tile: Config, problem: Problem, kernel: str, sum_kernel: str) -> Launch:
    """Launch the sums of columns over slabs of rows, 16 bytes per thread, then of the slabs' parts.

    The tile is threads × rows per slab × unroll. The workspace holds the parts.
    """
    threads, rows = tile.numbers("threads", "rows_per_slab")
    item = ITEM_BYTES[problem.dtype]
    across, slabs = -(-problem.n // (threads * 16 // item)), -(-problem.m // rows)
    return Launch(
        grid=(across * slabs,),
        block=(threads,),
        kernel=kernel,
        workspace_bytes=slabs * problem.n * item,
        next_launches=(sum_launch(sum_kernel, problem.n),) if slabs > 1 else (),
    )


def staged_blocks(outputs: int, threads: int, gpu: Gpu) -> int:
    """Return the number of blocks for `outputs` rows or columns, up to what the GPU holds.

    If there are more outputs than that, it is the largest divisor of their number, as published. If
    the divisor is less than half of what the GPU holds (it is 1 for a prime), all blocks but the
    last compute the same number of outputs.
    """
    resident = gpu.threads_per_multiprocessor // threads * gpu.multiprocessors
    if outputs <= resident:
        return outputs
    divisor = next(blocks for blocks in range(resident, 0, -1) if outputs % blocks == 0)
    outputs_per_block = -(-outputs // resident)
    return divisor if 2 * divisor >= resident else -(-outputs // outputs_per_block)


def on_staged_blocks(launch: Launch, tile: Config, problem: Problem, gpu: Gpu) -> Launch:
    """Launch blocks with an equal number of consecutive outputs, instead of one for each output.

    This is the `specialize` of the published staged kernels, and of each of their launches.
    """
    following = (on_staged_blocks(each, tile, problem, gpu) for each in launch.next_launches)
    blocks = staged_blocks(launch.grid[0], tile["threads"], gpu)
    return replace(launch, grid=(blocks,), next_launches=tuple(following))


def _refuse_staged(tile: Config) -> str | None:
    """Refuse tiles whose part of x and sums exceed shared memory."""
    threads, vec_blocks = tile.numbers("threads", "vec_blocks")
    if threads * (vec_blocks + 1) > MAX_SHARED:
        return f"takes up to {MAX_SHARED // threads - 1} vec_blocks with {threads} threads: 48 KB"
    return None


STAGED_TILES = tile_grid(
    {"threads": THREADS, "vec_blocks": range(1, 33)}, default=("128x14",), refuse=_refuse_staged
)
