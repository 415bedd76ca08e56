"""Launches that compute parts of a vector's sums and add up the parts: `partial_sums.cuh`."""

from gpubench.model import ITEM_BYTES, Config, Launch, Problem

SUM_COLUMNS = 32
SUM_GROUPS = 16
"""Columns and groups of threads of a block that adds up parts, as in the source."""


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
