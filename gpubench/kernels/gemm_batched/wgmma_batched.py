from collections.abc import Iterator
from dataclasses import replace

from gpubench.kernels import fitted_tile, tensor_cores, tile_costs
from gpubench.kernels.fitted_tile import PAIRS, ROWS_BY_8, STAGES, Form
from gpubench.kernels.tile_costs import Choice
from gpubench.model import Config, Launch, Problem

BATCHED = Form(rows=ROWS_BY_8, columns=(64, 128, 192, 256), clusters=PAIRS, options="")

PICKS = 4
"""Number of configurations that the model picks for each kernel. At 18 shapes on an H200, the picks
included the fastest of about nine configurations, or one that takes 3 % longer."""

FEW_STAGES = 3
"""Minimum number of stages of a block that shares its multiprocessor, if K has as many steps."""

REGISTERS = 65_536  # registers of a multiprocessor
OTHER_REGISTERS = 32  # registers of a thread besides its sums


def refuse(tile: Config, problem: Problem) -> str | None:
    """Also refuse one stage for several steps: two steps are under way at a time."""
    if tile["stages"] == 1 and problem.k > tile["BK"]:
        return f"{tile}: one stage is for K up to {tile['BK']}, not {problem.k}"
    return tensor_cores.refuse(tile, problem)


def choices(problem: Problem) -> Iterator[Choice]:
    """Yield the configurations that the model compares.

    Each tile has one block on a multiprocessor, or several blocks with fewer stages.
    """
    steps = -(-problem.k // BATCHED.step)
    for choice in tile_costs.choices(BATCHED, problem):
        threads = 128 * choice.consumers + 32
        max_resident = REGISTERS // (threads * (choice.sums + OTHER_REGISTERS))
        by_stages: dict[int, Choice] = {}
        for resident in range(max(max_resident, 1), 0, -1):
            each = replace(choice, resident=resident, max_stages=min(steps, choice.max_stages))
            if resident == 1 or each.stages >= min(steps, FEW_STAGES):
                by_stages.setdefault(each.stages, each)
        yield from reversed(by_stages.values())


def different_tiles(
    choices: tile_costs.Choices, problem: Problem, multiprocessors: int
) -> tuple[str, ...]:
    """Return the configurations that the model ranks first, with different areas or clusters."""
    different: dict[tuple[int, int], str] = {}
    for choice in tile_costs.ranked(choices, problem, multiprocessors):
        key = choice.rows * choice.columns, choice.down * choice.across
        different.setdefault(key, str(choice))
    return tuple(different.values())[:PICKS]


def maps_of_batch(launch: Launch, problem: Problem) -> Launch:
    """Return a launch whose maps of A, B and C have all matrices of the batch."""
    a, b, *_, c = launch.tensor_maps
    maps = tuple(replace(each, batch=problem.batch) for each in (a, b, c))
    return replace(launch, tensor_maps=maps)


def launches(tile: Config, problem: Problem, multiprocessors: int) -> Launch:
    """Return a launch of one block per tile, with a row of the grid for each product."""
    first = fitted_tile.launches(tile, problem, multiprocessors)
    return maps_of_batch(replace(first, grid=(*first.grid, problem.batch)), problem)


VARIANT = tensor_cores.variant(
    idea="wgmma_fitted of gemm, with a row of the grid for each product",
    after="batched_tile",
    tiles=BATCHED.tiles(
        stages=(1, 2, *STAGES),
        default=(
            "64x64x64/s3/cluster=1x1",
            "64x128x64/s3/cluster=1x1",
            "128x128x64/s3/cluster=1x1",
            "128x256x64/s4/cluster=1x1",
        ),
        shared_bytes=fitted_tile.shared_bytes,
        constraint=fitted_tile.why_not,
    ),
    launches=launches,
    refuse=refuse,
    auto_tiles=lambda problem, multiprocessors: different_tiles(choices, problem, multiprocessors),
)
