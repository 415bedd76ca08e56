"""Which small tile suits a shape in float64 and float32: a cost model.

It serves `dmma_split_cluster` and `splitk_cluster`. A multiprocessor makes 128 multiply-adds a
clock in both precisions. The model counts the blocks of the busiest multiprocessor. A step takes
as long as its multiply-adds, its accesses to shared memory, or what the L2 cache delivers: a
p-norm, as in `tile_costs.py`. The model adds the costs of a launch, of a step's barrier, of a
tile's end, and of sums that meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from gpubench.kernels.fitted_tile import MAX_CLUSTER, RESIDENT
from gpubench.kernels.tensor_cores import cluster
from gpubench.kernels.tile_costs import PICKS
from gpubench.model import Config, Problem

RATE = 128
"""Multiply-adds a clock of a multiprocessor, in float32 and on float64's tensor cores."""


CLOCK_MHZ = 1940.0
"""Clock in short bursts at which clock counts become times."""

NORM = 6
"""Exponent of the norm of a step's bounds, near the exponent of the 16-bit model."""


@dataclass(frozen=True, kw_only=True)
class SmallTileCosts:
    """Constants of the model for one precision and architecture."""

    launch: float
    """From one launch to the next, without any steps, in microseconds."""

    share: float
    """Share of the clocks in which a loop without other instructions multiplies."""

    waiting: float
    """Warps of a scheduler that would have to wait: with w warps the rate is w / (w + waiting)."""

    shared: float
    """Clocks of accesses to shared memory, for each clock that they would take without waits."""

    step: float
    """Clocks of a step's barrier."""

    uneven: float
    """How far blocks gather on one multiprocessor, not spread: 0 not at all, 1 until it is full.

    A launch that does not fill all multiprocessors does not spread its blocks evenly.
    """

    launch_of_pairs: float
    """Microseconds that a launch takes longer if blocks share what they fetch."""

    l2_bytes: float
    """Bytes a clock that the L2 cache delivers to each multiprocessor if all of them fetch."""

    end: float
    """Microseconds for each 10,000 bytes of a tile that is stored."""

    meet: float
    """Microseconds for each 10,000 bytes of a tile whose sums meet."""

    meet_part: float
    """Microseconds for each part of K."""


COSTS = {
    "float64": SmallTileCosts(
        launch=1.455, share=1, waiting=0, shared=0.3, step=51.73, uneven=0.2162,
        launch_of_pairs=0.9287, l2_bytes=43.74, end=0.3391, meet=0.009666, meet_part=0.7785,
    ),
    "float32": SmallTileCosts(
        launch=5.267, share=0.8443, waiting=0, shared=1.685, step=24.77, uneven=0.3043,
        launch_of_pairs=0, l2_bytes=64, end=0.3844, meet=0.2086, meet_part=0,
    ),
}  # fmt: skip
"""By precision, for compute capability 9.0. `benchmarks/fit_tiles.py` fitted them to the times of
seed 11 (results/h200/shapes/fit_11_*.csv). int32 takes the constants of float32."""


def costs_of(problem: Problem) -> SmallTileCosts:
    """Return the constants for the precision of a problem."""
    return COSTS["float64" if problem.dtype == "float64" else "float32"]


@dataclass(frozen=True, kw_only=True)
class SmallTileChoice:
    """A configuration, with the properties that the model uses."""

    tile: Config
    warps: int
    """Number of warps of a block that multiply."""

    resident: int
    """Number of blocks that a multiprocessor holds at once."""

    issued: float
    """Instructions that the loop issues for each multiply-add or multiplication: at least 1."""

    shared_clocks: float
    """Clocks that a step's accesses to shared memory take, without conflicts."""


SmallTileChoices = Callable[[Problem], Iterator[SmallTileChoice]]


def small_tile_us(
    choice: SmallTileChoice, problem: Problem, multiprocessors: int, costs: SmallTileCosts
) -> float:
    """Return the time of a product in short bursts with operands in the cache, in microseconds."""
    tile = choice.tile
    rows, columns, depth, parts = tile.numbers("BM", "BN", "BK", "splits")
    down, across = cluster(tile)
    clusters = -(-problem.m // (rows * down)) * -(-problem.n // (columns * across))
    size = down * across * parts
    resident = RESIDENT[min(size, MAX_CLUSTER) - 1] * min(size, MAX_CLUSTER) // size
    at_once = max(resident * multiprocessors // RESIDENT[0], 1)
    blocks = -(-clusters // at_once)  # of the busiest multiprocessor
    full, rest = divmod(blocks, choice.resident)
    held = float(rest)
    if not full:
        held += costs.uneven * (min(choice.resident, clusters) - rest)
    steps = max(-(-problem.k // depth // parts), 1)
    item = problem.precision.item_bytes
    fetched = depth * item * (rows / across + columns / down)

    def step_us(together: float) -> float:
        """Return the time of a step of each of `together` blocks of a multiprocessor."""
        warps = together * choice.warps / 4  # of a scheduler
        rate = RATE * costs.share / choice.issued * min(warps, 1) * warps / (warps + costs.waiting)
        busy = min(clusters * size / multiprocessors, 1)
        bounds = (
            rows * columns * depth / rate,
            choice.shared_clocks * costs.shared,
            fetched * busy / costs.l2_bytes,
        )
        clocks = float(sum(bound**NORM for bound in bounds) ** (1 / NORM)) + costs.step
        return together * clocks / CLOCK_MHZ

    steps_us = full * step_us(choice.resident) + (step_us(held) if rest else 0)
    kilobytes = rows * columns * item * 1e-4
    end_us = (full + (rest > 0)) * kilobytes * costs.end
    if parts > 1:
        end_us += (full + (rest > 0)) * (kilobytes * costs.meet + parts * costs.meet_part)
    pair_us = costs.launch_of_pairs * (down * across > 1)
    return float(costs.launch + pair_us + steps * steps_us + end_us)


@cache
def ranked_small_tiles(
    choices: SmallTileChoices, problem: Problem, multiprocessors: int
) -> tuple[Config, ...]:
    """Return configurations for a problem, the fastest by the model first."""
    costs = costs_of(problem)
    times = {
        choice: small_tile_us(choice, problem, multiprocessors, costs)
        for choice in choices(problem)
    }
    return tuple(choice.tile for choice in sorted(times, key=times.__getitem__))


def picks(choices: SmallTileChoices) -> Callable[[Problem, int], tuple[str, ...]]:
    """Return the function that picks configurations of a kernel, as `CudaVariant.auto_tiles`.

    The picks have different sizes of a tile's part of K, since configurations that divide a problem
    into equally many parts take nearly the same time.
    """

    def auto_tiles(problem: Problem, multiprocessors: int) -> tuple[str, ...]:
        different: dict[float, Config] = {}
        for tile in ranked_small_tiles(choices, problem, multiprocessors):
            different.setdefault(tile["BM"] * tile["BN"] / tile["splits"], tile)
            if len(different) == PICKS:
                break
        return tuple(map(str, different.values()))

    return auto_tiles
