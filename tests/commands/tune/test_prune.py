"""Configurations leave a race before any launch, by the compiler's report or by bounds."""

from contextlib import closing
from dataclasses import replace

import pytest
from fakes import point
from fakes import variant as fake

from gpubench.commands.tune.prune import Builds
from gpubench.hardware.architectures import EXAMPLES
from gpubench.model import CudaVariant, Point, Resources, Timer
from gpubench.plan.descriptor import load
from gpubench.plan.registry import KERNELS

H200 = EXAMPLES[9, 0]
PLAIN = Resources(registers=64, local_bytes=0, spill_bytes=0, shared_bytes=1024)


def at(name: str, tile: str, n: int = 4096, dtype: str = "float32") -> Point:
    variant = load(KERNELS / "gemm" / f"{name}.py", "gemm")
    assert isinstance(variant, CudaVariant)
    tiled = variant.tiles.read(tile)
    return point(variant, size=(n, n, n), tile=tiled, dtype=dtype, timer=Timer.EVENTS)


class Reported(Builds):
    """Builds whose compiler reports the figures of a test."""

    def __init__(self, report: dict[Point, Resources]) -> None:
        super().__init__(H200)
        self.report = report

    def resources(self, asked_point: Point) -> Resources | None:
        return self.report.get(asked_point)


def test_a_kernel_of_which_no_block_fits_needs_no_launch() -> None:
    fits, not_so = at("shared_tile", "16"), at("shared_tile", "32")
    huge = replace(PLAIN, shared_bytes=300 * 1024)
    builds = Reported({fits: PLAIN, not_so: huge})
    assert builds.why_not(fits, None, 0.0) is None
    why = builds.why_not(not_so, None, 0.0)
    assert why == "no multiprocessor holds a block: shared memory"


def test_a_kernel_that_spills_cannot_win_against_a_kernel_that_does_not() -> None:
    plain, spills = at("register_tile", "4"), at("register_tile", "16")
    builds = Reported({plain: PLAIN, spills: replace(PLAIN, spill_bytes=336)})
    assert "spills more than 32 bytes" in (builds.why_not(spills, plain, 1e9) or "")
    assert builds.why_not(spills, None, 0.0) is None  # no configuration was measured yet
    assert builds.why_not(spills, spills, 1e9) is None  # the fastest configuration spills too
    # The fastest kernels in results/h200 spill up to 16 bytes.
    builds.report[spills] = replace(PLAIN, spill_bytes=16)
    assert builds.why_not(spills, plain, 1e9) is None


def test_waves_longer_than_the_fastest_time_cannot_win() -> None:
    # At 1000×1000, 24 tiles of 256×192 need 24 of the 132 multiprocessors.
    few_waves, many_waves = (
        at("wgmma_mixed", "256x192x64/s3/cluster=1x2/group=16", 1000, "bfloat16"),
        None,
    )
    many_waves = at("wgmma", "64x128x64/s4", 1000, "bfloat16")
    builds = Reported({few_waves: PLAIN, many_waves: PLAIN})
    launch = builds.launch(few_waves)
    assert launch
    bound_us = builds.least_us(few_waves)
    assert bound_us == pytest.approx(2e9 / 1070e12 * 1e6 * 132 / launch.blocks, rel=0.01)
    assert "waves" in (builds.why_not(few_waves, many_waves, 0.9 * bound_us) or "")
    assert builds.why_not(few_waves, many_waves, 1.1 * bound_us) is None
    # A kernel that is faster than its bound shows that the assumed peak is wrong.
    assert builds.why_not(few_waves, many_waves, 0.1 * builds.least_us(many_waves)) is None


def test_the_authors_choice_comes_first_and_then_the_lowest_bound() -> None:
    variant = load(KERNELS / "gemm" / "wgmma_cluster.py", "gemm")
    assert variant.tiles
    first = at("wgmma_cluster", variant.tiles.default[0], 1000, "bfloat16")
    points = [replace(first, tile=tile) for tile in variant.tiles]
    ranked = Builds(H200).promising(points)
    defaults = {str(tile) for tile in variant.tiles.defaults}
    assert {str(p.tile) for p in ranked[: len(defaults)]} == defaults
    bounds = [Builds(H200).least_us(p) for p in ranked[len(defaults) :]]
    assert bounds == sorted(bounds)


def test_kernels_are_compiled_here_in_the_order_that_was_given() -> None:
    tiles = [at("shared_tile", str(edge), 256) for edge in (8, 4)]
    with closing(Builds(H200)) as builds:
        builds.start(tiles)
        assert builds.first_ready(tiles) in {0, 1}
        resources = builds.resources(tiles[0])
        assert resources
        assert resources.shared_bytes == 2 * 8 * 8 * 4
        wrong = at("shared_tile", "2", 256)
        assert builds.first_ready([wrong]) == 0  # nobody compiles it, so do not wait


def test_layouts_are_compiled_apart() -> None:
    rows = at("shared_tile", "8", 256)
    columns = replace(rows, problem=replace(rows.problem, column_major=("B",)))
    with closing(Builds(H200)) as builds:
        builds.start([rows])
        assert builds.resources(rows)
        assert builds.resources(columns) is None  # nobody compiles this layout


def test_a_configuration_that_nobody_compiles_is_ready_and_has_no_resources() -> None:
    builds, loop = Builds(H200), point(fake())
    assert builds.first_ready([loop]) == 0
    assert builds.resources(loop) is None
    assert builds.launch(loop) is None
    assert builds.why_not(loop, loop, 1.0) is None
    assert builds.least_us(loop) == 0.0
