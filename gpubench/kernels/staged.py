"""The tiles and the grid of the published staged kernels."""

from gpubench.kernels.tile_grid import THREADS, tile_grid
from gpubench.model import Config, Gpu

MAX_SHARED = 6144
"""Maximum number of 8-byte elements in 48 KB of shared memory."""


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


def refuse(tile: Config) -> str | None:
    """Refuse tiles whose part of x and sums exceed shared memory."""
    threads, vec_blocks = tile.numbers("threads", "vec_blocks")
    if threads * (vec_blocks + 1) > MAX_SHARED:
        return f"takes up to {MAX_SHARED // threads - 1} vec_blocks with {threads} threads: 48 KB"
    return None


STAGED_TILES = tile_grid(
    {"threads": THREADS, "vec_blocks": range(1, 33)}, default=("128x14",), refuse=refuse
)
