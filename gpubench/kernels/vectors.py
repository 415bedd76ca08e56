"""Tiles and launches of the kernels that multiply a matrix with a vector."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from gpubench.model import ITEM_BYTES, Config, CudaVariant, Gpu, Launch, Problem, Space

THREADS = (32, 64, 128, 256, 512, 1024)
"""Numbers of threads of a block: whole warps, and powers of two for reductions in a tree."""

SLAB_ROWS = (32, 64, 128, 256, 512, 1024)
"""Numbers of rows that one block adds up, if several blocks add up a column."""

SUM_COLUMNS, SUM_GROUPS = 32, 16
"""Number of columns, and of groups of threads, of a block that adds up partial sums. The numbers
must equal the numbers in `partial_sums.cuh`."""

MAX_SHARED = 6144  # maximum number of 8-byte elements in 48 KB of shared memory


def tile_grid(
    axes: Mapping[str, Sequence[int]],
    default: tuple[str, ...],
    refuse: Callable[[Config], str | None] | None = None,
) -> Space:
    """Return the space of tiles such as `128x1x4`, with a number for each axis.

    `refuse` returns why a combination of numbers is illegal, or None.
    """
    return Space(axes=axes, block=tuple(axes), default=default, constraint=refuse)


variant = partial(CudaVariant, block="threads", reuse=lambda _tile: (1, 1))
"""Returns the variant of a kernel. By default, a block has the tile's number of threads, and no
elements of the result share a load."""


def sum_launch(kernel: str, columns: int, *int_arguments: int) -> Launch:
    """Return a launch of the template `kernel`, which adds up rows of `columns` partial sums."""
    return Launch(
        grid=(-(-columns // SUM_COLUMNS),),
        block=(SUM_COLUMNS, SUM_GROUPS),
        kernel=kernel,
        int_arguments=int_arguments,
    )


def slab_launch(tile: Config, problem: Problem, kernel: str, sum_kernel: str) -> Launch:
    """Return a launch that adds up columns within slabs of rows, and then adds the partial sums.

    A thread adds up 16 bytes of columns. The tile has the numbers of threads, of rows per slab, and
    of unrolled iterations. The partial sums are in the workspace.
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
    """Return the number of blocks for `outputs` rows or columns.

    If the GPU holds a block for each output at once, each output has a block. Otherwise, the number
    of blocks is the largest divisor of the number of outputs, as in the published kernels. For a
    prime number, this divisor is 1. If the divisor is less than half of the number of blocks that
    the GPU holds, another number is returned, with which all blocks but the last one compute the
    same number of outputs.
    """
    resident = gpu.threads_per_multiprocessor // threads * gpu.multiprocessors
    if outputs <= resident:
        return outputs
    divisor = next(blocks for blocks in range(resident, 0, -1) if outputs % blocks == 0)
    outputs_per_block = -(-outputs // resident)
    return divisor if 2 * divisor >= resident else -(-outputs // outputs_per_block)


def on_staged_blocks(launch: Launch, tile: Config, problem: Problem, gpu: Gpu) -> Launch:
    """Return a launch in which each block computes several outputs.

    If possible, all blocks compute the same number of outputs. The given launch has a block for
    each output. The function is the `specialize` of the published staged kernels, and also changes
    the next launches.
    """
    following = (on_staged_blocks(each, tile, problem, gpu) for each in launch.next_launches)
    blocks = staged_blocks(launch.grid[0], tile["threads"], gpu)
    return replace(launch, grid=(blocks,), next_launches=tuple(following))


def _refuse_staged(tile: Config) -> str | None:
    """Refuse a tile if its part of x and its sums exceed shared memory."""
    threads, vec_blocks = tile.numbers("threads", "vec_blocks")
    if threads * (vec_blocks + 1) > MAX_SHARED:
        return (
            f"takes up to {MAX_SHARED // threads - 1} vec_blocks with {threads} threads: shared "
            "memory has 48 KB"
        )
    return None


STAGED_TILES = tile_grid(
    {"threads": THREADS, "vec_blocks": range(1, 33)}, default=("128x14",), refuse=_refuse_staged
)
