"""No figure on a page rests on rounds that disagree."""

from __future__ import annotations

import re

import pytest
from newcomer import PAGES, REPOSITORY

from gpubench.commands.reproduce.compare import Reproduction
from gpubench.commands.reproduce.experiment import read_experiment, shipped
from gpubench.commands.reproduce.rules import Figure
from gpubench.commands.reproduce.view import grids
from gpubench.row import read
from gpubench.view.tables import milliseconds

H200 = REPOSITORY / "results" / "h200"
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def as_measured(name: str) -> Reproduction:
    """An experiment with the rows of its results file."""
    rows = read(H200 / "reproduce" / f"{name}.csv")
    return Reproduction(experiment=read_experiment(shipped()[name]), rows=rows, devices=())


@pytest.mark.parametrize("name", ["blog-2009", "p100-tiles"])
def test_published_tables_of_the_readme_are_what_the_results_give(name: str) -> None:
    shown = [grid for grid in grids(as_measured(name), whole=True) if f"**{grid.title}**" in README]
    assert len(shown) == 2
    for grid in shown:
        assert grid.markdown in README


def test_the_readmes_times_by_tile_are_stable_rows_of_the_sweep() -> None:
    by_tile = {
        (row.variant, row.tile): row
        for row in read(H200 / "sweep.csv")
        if (row.n, row.cache) == (2048, "cold")
    }
    (table,) = re.findall(r"\| tile \| naive_unc.*?\n\n", README, re.DOTALL)
    head, _, *lines = [re.split(r" *\| *", line)[1:-1] for line in table.strip().splitlines()]
    assert (len(head), len(lines)) == (5, 9)
    for tile, *texts in lines:
        for variant, text in zip(head[1:], texts, strict=True):
            row = by_tile[variant, tile]
            assert text.strip("*") == milliseconds(row.median_us)
            assert not row.unstable


@pytest.mark.parametrize("name", ["ladder", "ladder_top", "compare"])
def test_comparisons_with_cublas_rest_on_stable_rows(name: str) -> None:
    assert [row.label for row in read(H200 / f"{name}.csv") if row.unstable] == []


def test_no_page_states_a_speed_up_over_rounds_that_disagree() -> None:
    refused = [
        figure.value
        for compared in as_measured("blog-2009").compared
        for line in compared.lines
        for figure in line.figures
        if figure.figure == Figure.SPEEDUP and figure.unstable and figure.value
    ]
    pages = {page.name: page.read_text(encoding="utf-8") for page in PAGES.rglob("*.md")}
    for name, text in (pages | {"README.md": README}).items():
        for value in refused:
            for digits in {f"{value:.1f}", f"{value:.2f}", f"{value:,.0f}"}:
                assert not re.search(rf"(?<![\d.,]){re.escape(digits)} times", text), (name, digits)
