"""Measures a function at small sizes, to check whether the results of the function are right."""

from collections.abc import Sequence
from pathlib import Path

from gpubench.engine.pool import local_pool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import all_rows
from gpubench.model import OPERATIONS, Cache, CallVariant, Config, Timing
from gpubench.plan.scrutiny import owner_of
from gpubench.plan.sweep import Sweep
from gpubench.results.row import Row

SHORTEST = Timing(rounds=1, min_samples=2, few_samples=1, min_device_s=0, max_wall_s=0.001)
"""Sampling policy that takes as few samples as possible, because the times are not shown."""


def rows_at(
    variant: CallVariant,
    kernels: Path | None,
    sizes: Sequence[Sequence[int]],
    tiles: Sequence[Config | None] = (),
) -> list[Row]:
    """Measure a variant at some sizes, and return the rows. Each size consists of M, N and K.

    Raises KeyboardInterrupt if the sweep was interrupted.
    """
    operation = OPERATIONS[variant.op]
    count = len(operation.extents)
    sweep = Sweep(
        op=variant.op,
        variants=(variant.name,),
        sizes=tuple(operation.size_of((*size, *size)[:count]) for size in sizes),
        tiles=tuple(str(tile) for tile in tiles if tile),
        layouts=variant.layouts,
        dtypes=variant.dtypes,
        device=variant.backend,
        caches=(Cache.COLD if owner_of(variant) else Cache.HOT,),
        kernels=kernels,
        timing=SHORTEST,
    )
    with local_pool(sweep.device, sweep.timer, kernels=sweep.kernels) as pool:
        return all_rows(prepare(sweep, pool.device), pool)
