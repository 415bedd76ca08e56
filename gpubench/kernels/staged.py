"""The tiles and the grid of the published staged kernels."""

from __future__ import annotations

from gpubench.kernels.tile_grid import THREADS, tile_grid
from gpubench.model import Config, Gpu

MAX_SHARED = 6144
"""Elements of up to 8 bytes in 48 KB of shared memory."""


def staged_blocks(outputs: int, threads: int, gpu: Gpu) -> int:
    """Blocks that compute so many rows or columns: at most as many as the GPU holds at once.

    Where there are more outputs, the largest divisor of their number, as published. Where that is
    less than half of what the GPU holds (it is 1 for a prime), the number of blocks with which all
    but the last compute equally many.
    """
    resident = gpu.threads_per_multiprocessor // threads * gpu.multiprocessors
    if outputs <= resident:
        return outputs
    divisor = next(blocks for blocks in range(resident, 0, -1) if outputs % blocks == 0)
    outputs_per_block = -(-outputs // resident)
    return divisor if 2 * divisor >= resident else -(-outputs // outputs_per_block)


def refuse(tile: Config) -> str | None:
    """Shared memory holds a part of x, and a sum per thread."""
    threads, vec_blocks = tile.numbers("threads", "vec_blocks")
    if threads * (vec_blocks + 1) > MAX_SHARED:
        return f"takes up to {MAX_SHARED // threads - 1} vec_blocks with {threads} threads: 48 KB"
    return None


STAGED_TILES = tile_grid(
    {"threads": THREADS, "vec_blocks": range(1, 33)}, default=("128x14",), refuse=refuse
)
