"""The options of the command that measures ambiguous points again."""

from dataclasses import replace

import pytest
from fakes import measured, point, variant

from gpubench.commands.diff.report import covering_options
from gpubench.model import Cache, Timer, edges
from gpubench.options import read_sweep
from gpubench.plan.sweep import plan
from gpubench.results.row import Row

TILED = variant(name="tiled", tiles=edges(1, 32, because="of a test"))


def tiled(size: int, tile: str) -> Row:
    return replace(measured(9.0, point(TILED, size=(size, size, size))), tile=tile)


def test_the_options_are_those_of_the_command_line_with_sizes_and_tiles_in_order() -> None:
    hot = replace(
        tiled(32, "4"), cache=Cache.HOT, state="sustained", compute_mode="tf32", timer=Timer.CUPTI
    )
    assert covering_options([tiled(128, "8"), hot]) == {
        "sizes": "32,128",
        "tiles": "4,8",
        "variants": "tiled",
        "dtypes": "float32,tf32",
        "cache": "both",
        "state": "both",
        "timer": "cupti",
        "device": "cpu",
    }
    index = replace(tiled(16, "8"), operands="index")
    assert covering_options([index])["operands"] == "index"


@pytest.mark.parametrize("layout", ["row-major", "column-major A", "column-major A B"])
def test_the_sweep_has_the_points_of_the_rows_in_their_layout_and_with_their_operands(
    layout: str,
) -> None:
    first = replace(
        measured(100.0, point(size=(16, 16, 16))), variant="cpu_blas", tile="", layout=layout
    )
    rows = [replace(first, operands=fill) for fill in ("ones", "normal")]
    planned = {point.key for point in plan(read_sweep(covering_options(rows)), "cpu")}
    assert {row.key for row in rows} == planned
