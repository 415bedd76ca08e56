"""The command that `diff` suggests for ambiguous points."""

from __future__ import annotations

from dataclasses import replace

from fakes import measured, point, variant

from gpubench.commands.diff.report import covering_options
from gpubench.model import Cache, Timer, edges
from gpubench.results.row import Row

TILED = variant(name="tiled", tiles=edges(1, 32, because="of a test"))


def tiled(size: int, tile: str) -> Row:
    return replace(measured(9.0, point(TILED, size=(size, size, size))), tile=tile)


def test_the_options_of_a_covering_sweep_are_those_of_the_command_line() -> None:
    hot = replace(tiled(32, "4"), cache=Cache.HOT, dtype="float64", timer=Timer.CUPTI)
    assert covering_options([tiled(16, "8"), hot]) == {
        "sizes": "16,32",
        "tiles": "8,4",
        "variants": "tiled",
        "dtypes": "float32,float64",
        "cache": "both",
        "timer": "cupti",
        "device": "cpu",
    }
    index = replace(tiled(16, "8"), operands="index")
    assert covering_options([index])["operands"] == "index"


def test_the_options_of_a_covering_sweep_name_layouts_and_operands_that_are_not_the_default() -> (
    None
):
    transposed = replace(tiled(16, "8"), layout="column-major B", operands="zeros")
    options = covering_options([tiled(16, "8"), transposed])
    assert (options["layouts"], options["operands"]) == ("nn,nt", "uniform,zeros")
    assert not {"layouts", "operands"} & covering_options([tiled(16, "8")]).keys()
