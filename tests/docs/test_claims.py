"""No figure on a page rests on rounds that disagree."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest
from newcomer import PAGES, REPOSITORY
from samples import sample

from gpubench.commands.reproduce.compare import Reproduction
from gpubench.commands.reproduce.experiment import read_experiment, shipped
from gpubench.commands.reproduce.rules import Figure
from gpubench.results.row import Row, read, write
from gpubench.view.tables import best_of

H200 = REPOSITORY / "results" / "h200"
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def as_measured(name: str) -> Reproduction:
    """An experiment with the rows of its results file."""
    rows = read(H200 / "reproduce" / f"{name}.csv")
    return Reproduction(experiment=read_experiment(shipped()[name]), rows=rows, devices=())


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """docs/make_tables.py as a module."""
    spec = importlib.util.spec_from_file_location("make_tables", PAGES / "make_tables.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_figure_of_the_readme_and_the_pages_is_what_the_results_give(
    script: ModuleType,
) -> None:
    made = set()
    for page in script.PAGES:
        text = page.read_text(encoding="utf-8")
        assert script.filled(text) == text, page.name
        made |= {name for name, _ in script.BLOCK.findall(text)}
    assert made == set(script.BLOCKS)
    assert {"claims", "steps", "tiles"} <= made
    stale = re.sub(r"(?<=\| )\d\d\.\d\d(?= \|)", "1.234", README, count=1)
    assert stale != README
    assert script.filled(stale) == README


def test_a_claim_is_met_missed_flagged_or_not_measured(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = sys.modules[script.claims.__module__]
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    own = sample("packed_panels", median_us=100.0, cache="cold", round_medians_us="100;100")
    library = replace(own, variant="cublas", tile="", median_us=104.0, round_medians_us="104;104")

    def outcome(least: float, *rows: Row, **more: bool) -> list[str]:
        write(rows, tmp_path / "top.csv")
        size = own.size
        return claims.Claim("", "top.csv", claims.faster(size, least, **more)).cells[1:3]

    assert outcome(1.04, own, library) == ["1.040", "met"]
    assert outcome(1.05, own, library) == ["1.040", "**missed**"]
    flagged = replace(library, round_medians_us="104;120")
    assert outcome(1.0, own, flagged) == ["1.040", "rounds disagree"]
    wide = replace(library, round_medians_us="103;106")
    assert outcome(1.05, own, wide, interval=True)[1] == "its interval reaches it"
    emulated = replace(library, variant="cublas_emulated")  # never a baseline
    assert outcome(1.0, own, emulated) == ["", "not measured"]
    assert claims.Claim("", "none.csv", claims.faster("1", 1.0)).cells[1:3] == ["", "not measured"]


def test_the_recording_says_what_its_commands_print(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COLUMNS", "FORCE_COLOR"):
        monkeypatch.setenv(name, "")  # set by the recording, and put back after this test
    recorded = script.RECORDING.read_text(encoding="utf-8")
    assert script.words(recorded) == script.words(script.recording())
    best = best_of(row for row in read(H200 / "ladder.csv") if row.median_us)
    assert f"{best.gflops:,.0f}" in recorded
    assert "http" not in recorded.replace("http://www.w3.org/2000/svg", "").replace(
        "https://www.textualize.io", ""
    )


def test_no_figure_stands_in_the_readme_outside_what_is_made(script: ModuleType) -> None:
    rest = script.BLOCK.sub("", README)
    assert not re.findall(r"\d[\d,]*\.\d+ ?(?:ms|µs|%|times|GFLOP)", rest)


@pytest.mark.parametrize("name", ["ladder", "ladder_top"])
def test_comparisons_with_cublas_rest_on_stable_rows(name: str) -> None:
    assert [row.label for row in read(H200 / f"{name}.csv") if row.unstable] == []


def test_what_the_pictures_of_compare_cublas_draw_are_stable_rows() -> None:
    """In float32 the best tile of each kernel and size: no page quotes the others."""
    drawn: dict[tuple[str, str], list[Row]] = {}
    for row in read(H200 / "compare.csv"):
        if row.median_us and row.dtype == "float32":
            drawn.setdefault((row.variant, row.size), []).append(row)
    assert [best.label for best in map(best_of, drawn.values()) if best.unstable] == []


def test_no_page_states_a_speed_up_over_rounds_that_disagree() -> None:
    refused = [
        entry.measured
        for labels in as_measured("blog-2009").entries.values()
        for entry in chain.from_iterable(labels)
        if entry.figure == Figure.SPEEDUP and entry.unstable and entry.measured
    ]
    pages = {page.name: page.read_text(encoding="utf-8") for page in PAGES.rglob("*.md")}
    for name, text in (pages | {"README.md": README}).items():
        for value in refused:
            for digits in {f"{value:.1f}", f"{value:.2f}", f"{value:,.0f}"}:
                assert not re.search(rf"(?<![\d.,]){re.escape(digits)} times", text), (name, digits)
