"""The grid and the tiles of the published staged kernels."""

from __future__ import annotations

from gpubench.kernels.tile_grid import THREADS, tile_grid
from gpubench.model import Gpu, Tile

MAX_SHARED = 6144
"""Elements in shared memory, of 8 bytes at the most: 48 KB."""


def shares(outputs: int, threads: int, gpu: Gpu) -> int:
    """Blocks that share out so many rows or columns: no more than the GPU holds at once.

    Above that the largest divisor of `outputs`, as published. Where it is less than half of what
    the GPU holds (it is 1 for a prime), so many that all shares but the last are equal.
    """
    most = gpu.threads_per_multiprocessor // threads * gpu.multiprocessors
    if outputs <= most:
        return outputs
    divisor = next(blocks for blocks in range(most, 0, -1) if outputs % blocks == 0)
    share = -(-outputs // most)
    return divisor if 2 * divisor >= most else -(-outputs // share)


def refuse(tile: Tile) -> str | None:
    """A part of x and a sum for each thread lie in shared memory."""
    threads, vec_blocks = tile.block
    if threads * (vec_blocks + 1) > MAX_SHARED:
        return f"takes up to {MAX_SHARED // threads - 1} vec_blocks with {threads} threads: 48 KB"
    return None


STAGED_TILES = tile_grid(
    {"threads": THREADS, "vec_blocks": range(1, 33)}, default=("128x14",), refuse=refuse
)
