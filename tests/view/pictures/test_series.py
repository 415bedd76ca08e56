"""Rows are sorted into series and panels for drawing."""

from dataclasses import replace
from pathlib import Path

import pytest
from samples import sample

from gpubench.results.row import Row
from gpubench.view.pictures.series import extent, panels, sources, titles


def labels(*files: tuple[str, Row]) -> list[str]:
    return [each.label for each in sources([(Path(name), [row]) for name, row in files])]


def test_a_lone_source_needs_no_label() -> None:
    assert labels(("a.csv", sample())) == [""]


def test_sources_are_labelled_by_what_differs_first() -> None:
    here = sample()
    elsewhere, later = replace(here, device="Other GPU"), replace(here, gpubench="9.9.9")
    assert labels(("a.csv", here), ("b.csv", elsewhere)) == ["Fake GPU", "Other GPU"]
    assert labels(("a.csv", here), ("b.csv", later)) == [
        f"gpubench {here.gpubench}",
        "gpubench 9.9.9",
    ]
    assert labels(("a.csv", here), ("b.csv", here)) == ["a", "b"]
    assert labels(("old/a.csv", here), ("new/a.csv", here)) == ["old/a.csv", "new/a.csv"]


def test_device_and_version_stand_together_where_one_does_not_suffice() -> None:
    here = sample()
    other = replace(here, device="Other GPU")
    rows = [here, other, replace(other, gpubench="9.9.9")]
    assert [source.label for source in sources([(Path("a.csv"), rows)])] == [
        f"Fake GPU, gpubench {here.gpubench}",
        f"Other GPU, gpubench {here.gpubench}",
        "Other GPU, gpubench 9.9.9",
    ]


def test_panels_hold_what_may_be_compared() -> None:
    rows = [
        sample(),
        sample("cublas"),
        sample(compute_mode="float64"),
        sample(n=2048),
        sample(cache="hot"),
    ]
    (each,) = sources([(Path("a.csv"), rows)])
    assert [panel.title for panel in panels([each], titles([each], by_size=True))] == [
        "gemm 1024 float32 on Fake GPU, cold cache",
        "gemm 1024 float64 on Fake GPU, cold cache",
        "gemm 2048 float32 on Fake GPU, cold cache",
        "gemm 1024 float32 on Fake GPU, hot cache",
    ]
    assert len(panels([each], titles([each], by_size=False))) == 3


def test_problems_of_two_sizes_with_one_name_have_panels_of_their_own() -> None:
    rows = [sample(n=n, problem="output") for n in (512, 1024)]
    (each,) = sources([(Path("a.csv"), rows)])
    assert [panel.title for panel in panels([each], titles([each], by_size=True))] == [
        "gemm output (512) float32 on Fake GPU, cold cache",
        "gemm output (1024) float32 on Fake GPU, cold cache",
    ]


def test_the_extent_is_the_edge_of_a_cube_or_square_with_as_much_work() -> None:
    assert extent(sample(n=512)) == pytest.approx(512)
    assert extent(replace(sample(), m=64, n=512, k=1)) == pytest.approx(181.02, abs=0.01)
