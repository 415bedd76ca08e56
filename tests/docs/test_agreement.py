"""`benchmarks/agreement.py`: what a pass measures, and the report and tables of passes."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from pathlib import Path

import pytest
from newcomer import PAGES, REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))
sys.path.insert(0, str(PAGES))
import agreement
import tables
from agreement_timers import KERNELS, Case, Reading

SIZES = (80, 1280)
US = {"events_hot": 20.4, "ncu_hot": 20.0, "raw_cupti_hot": 19.0, "paired_gap": 1.25}


def write_pass(path: Path, scale: float) -> None:
    """Write a pass whose times grow with the size. Nsight Compute lacks cuBLAS at 80."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines: list[object] = [{"GPU": "a GPU"}]
    for column, us in US.items():
        for size in SIZES:
            for variant, tile in KERNELS:
                case = Case(variant, tile, size)
                if (column, variant, size) == ("ncu_hot", "cublas", 80):
                    lines.append(Reading(column, case, reason="ncu crashed"))
                else:
                    lines.append(Reading(column, case, us * scale * size / 80, 1))
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))


@pytest.fixture
def report(tmp_path: Path) -> Path:
    for number, scale in enumerate((0.5, 1.0, 8.0), 1):
        write_pass(tmp_path / "agreement_new" / f"{number}.jsonl.gz", scale)
    path = tmp_path / "agreement_new.csv"
    assert agreement.report(tmp_path / "agreement_new", path) == 0
    return path


def test_a_report_has_the_medians_of_the_cases_that_its_passes_have(report: Path) -> None:
    with report.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["variant"], line["n"]) for line in lines[:3]] == [
        ("cublas", "80"), ("cublas", "1280"), ("naive", "80"),
    ]  # fmt: skip
    assert len(lines) == len(SIZES) * len(KERNELS)
    assert float(lines[2]["events_hot_us"]) == 20.4
    assert float(lines[2]["events_over_ncu_hot"]) == pytest.approx(1.02)
    assert float(lines[1]["gap_per_kernel_us"]) == 20.0
    assert lines[0]["events_hot_us"]
    assert lines[0]["ncu_hot_us"] == lines[0]["events_over_ncu_hot"] == ""


def test_tables_of_the_passes_name_what_misses_the_bound(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "H200", report.parent)
    said = tables.agreement_new()
    assert "At 80 and 1280, 0 of 7 points of 14 µs or more" in " ".join(said.split())
    assert "`naive 32` at 80 +2.0 %" in said
    whole = tables.agreement_all("agreement_new")
    assert "- GPU: a GPU" in whole
    assert "event pair" not in whole  # no pass has it


def test_a_pass_measures_the_sizes_and_columns_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(
        timer: str, sizes: list[int], columns: list[str], *_wrapper: object
    ) -> tuple[list[Reading], str]:
        case = Case(*KERNELS[0], sizes[0])
        return [Reading(column, case, 3.0) for column in columns], f"{timer} crashed"

    monkeypatch.setattr(agreement, "environment", lambda: {"GPU": "a GPU"})
    monkeypatch.setattr(agreement, "by_worker", answer)
    path = tmp_path / "1.jsonl"
    words = ["agreement.py", "pass", str(path), "--sizes", "80,160", "--columns"]
    monkeypatch.setattr(sys, "argv", [*words, "events_hot,paired_gap"])
    assert agreement.main() == 0
    readings = [agreement.reading(line) for line in path.read_text().splitlines()[1:]]
    assert len(readings) == 2 * 2 * len(KERNELS)
    assert {reading.column for reading in readings} == {"events_hot", "paired_gap"}
    assert {reading.case.size for reading in readings} == {80, 160}
    assert [reading.us for reading in readings if reading.us] == [3.0, 3.0]
    assert "paired crashed" in {reading.reason for reading in readings}
    monkeypatch.setattr(sys, "argv", [*words, "no_such_column"])
    with pytest.raises(SystemExit):
        agreement.main()
