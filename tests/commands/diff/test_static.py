"""`gpubench diff` of build files: verdicts, exit codes, and formats."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from diffs import Run, row

from gpubench.commands.diff.static import BuildVerdict, compare_builds, read_limits
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.results import row as results
from gpubench.results.build_row import BuildRow, encode, read

Builds = Callable[..., tuple[str, str]]


def built(tile: str = "16", **facts: Any) -> BuildRow:
    """Return the row of a kernel that compiled."""
    resources = {"registers": 64, "spill_bytes": 0, "local_bytes": 0, "threads_per_block": 256}
    resident = {"resident_blocks": 4, "occupancy": 0.5}
    loop = {"loop_instructions": 100, "multiply_adds_per_instruction": 0.8}
    accesses = {"sectors_per_request": 4.0, "sectors_over_least": 1.0, "bank_conflict_ways": 1.0}
    tools = {"compiler": "NVRTC 13.1", "disassembler": "13.1.80", "recorder": "g++ 12.2.0"}
    usual = {"status": Status.OK, **resources, **resident, **loop, **accesses, **tools}
    key = {"op": "gemm", "variant": "mine", "dtype": "float32", "architecture": "sm_90"}
    numbers = {"launch": 1, "m": 1024, "n": 1024, "k": 1024}
    return BuildRow(**{"tile": tile, **key, **numbers, **usual, **facts})


def verdict(before: BuildRow | None, after: BuildRow | None, allow: str = "") -> str | None:
    """Return the verdict on one row."""
    base, new = ([side] if side else [] for side in (before, after))
    findings = compare_builds(base, new, read_limits(allow))
    return str(next(iter(findings.values())).verdict) if findings else None


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    def written(*sides: list[BuildRow]) -> tuple[str, ...]:
        paths = [tmp_path / name for name in ("base.csv", "new.csv")]
        for path, rows in zip(paths, sides, strict=True):
            path.write_bytes(encode(rows))
        return tuple(map(str, paths))

    return written  # type: ignore[return-value]


# ---- verdicts


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, BuildVerdict.SAME),
        ({"registers": 66}, BuildVerdict.CHANGED),
        ({"options": "-DFAST"}, BuildVerdict.CHANGED),
        ({"spill_bytes": 4}, BuildVerdict.WORSE),
        ({"local_bytes": 4000, "occupancy": 1.0}, BuildVerdict.WORSE),
        ({"occupancy": 0.375, "resident_blocks": 3}, BuildVerdict.WORSE),
        ({"multiply_adds_per_instruction": 0.77}, BuildVerdict.CHANGED),
        ({"multiply_adds_per_instruction": 0.76}, BuildVerdict.CHANGED),  # by exactly 5 %
        ({"multiply_adds_per_instruction": 0.755}, BuildVerdict.WORSE),
        ({"sectors_over_least": 1.009}, BuildVerdict.CHANGED),
        ({"sectors_over_least": 1.01}, BuildVerdict.CHANGED),  # by exactly 1 %
        ({"sectors_over_least": 1.02}, BuildVerdict.WORSE),
        ({"bank_conflict_ways": 1.02}, BuildVerdict.WORSE),
        ({"bank_conflict_ways": None, "not_analysed": "inline PTX"}, BuildVerdict.CHANGED),
        ({"uncoalesced_lines": "mine.cu:8 1"}, BuildVerdict.SAME),
        ({"resident_blocks": 0, "occupancy": 0.0}, BuildVerdict.BROKEN),
        ({"status": Status.ERROR, "reason": "no such name"}, BuildVerdict.BROKEN),
        ({"source_hash": "other"}, BuildVerdict.SAME),
        ({"loop_instructions": None, "multiply_adds_per_instruction": None}, BuildVerdict.WORSE),
    ],
)
def test_each_change_of_a_build_column_has_its_verdict(
    change: dict[str, Any], expected: BuildVerdict
) -> None:
    assert verdict(built(), built(**change)) == expected


def test_a_block_beyond_the_launch_bounds_is_broken_with_both_numbers() -> None:
    failing = built(resident_blocks=0, occupancy=0.0, max_threads_per_block=128)
    (finding,) = compare_builds([built()], [failing], read_limits("")).values()
    assert finding.verdict == BuildVerdict.BROKEN
    assert "256 threads" in finding.reason
    assert "128" in finding.reason


def test_occupancy_for_more_work_per_thread_is_a_trade() -> None:
    traded = built(occupancy=0.375, resident_blocks=3, multiply_adds_per_instruction=0.9)
    assert verdict(built(), traded) == BuildVerdict.CHANGED
    assert verdict(built(), replace(traded, spill_bytes=4)) == BuildVerdict.WORSE


def test_kernels_bound_by_memory_are_judged_by_their_spills_and_accesses() -> None:
    base = built(op="gemv")
    for change in ({"occupancy": 0.25}, {"multiply_adds_per_instruction": 0.4}):
        assert verdict(base, replace(base, **change)) == BuildVerdict.CHANGED
    for change in ({"spill_bytes": 4}, {"sectors_over_least": 8.0}):
        assert verdict(base, replace(base, **change)) == BuildVerdict.WORSE


def test_a_row_on_one_side_is_missing_new_or_broken_and_one_on_none_has_no_verdict() -> None:
    failed, skipped = built(status=Status.ERROR), built(status=Status.SKIPPED)
    for before, after, expected in (
        (built(spill_bytes=4), built(), BuildVerdict.BETTER),
        (built(), None, BuildVerdict.MISSING),
        (None, built(), BuildVerdict.NEW),
        (failed, built(), BuildVerdict.NEW),
        (None, failed, BuildVerdict.BROKEN),
        (skipped, skipped, None),
        (None, skipped, None),
    ):
        assert verdict(before, after) == expected


@pytest.mark.parametrize(
    ("allow", "change"),
    [
        ("spill_bytes=8", {"spill_bytes": 8}),
        ("spill_bytes=8", {"spill_bytes": 8, "local_bytes": 8}),
        ("local_bytes=16", {"local_bytes": 16}),
        ("occupancy=25%", {"occupancy": 0.375}),
        ("multiply_adds_per_instruction=0.1", {"multiply_adds_per_instruction": 0.71}),
    ],
)
def test_a_limit_allows_a_change_for_the_worse(allow: str, change: dict[str, Any]) -> None:
    assert verdict(built(), built(**change)) == BuildVerdict.WORSE
    assert verdict(built(), built(**change), allow) == BuildVerdict.CHANGED


@pytest.mark.parametrize("allow", ["registers=3", "spill_bytes", "occupancy=-1", "occupancy=nan"])
def test_a_limit_that_makes_no_sense_is_refused(allow: str) -> None:
    with pytest.raises(UsageError, match="--allow"):
        read_limits(allow)


def test_without_a_disassembler_on_a_side_loops_are_not_compared() -> None:
    unknown = built(
        disassembler=None, loop_instructions=None, multiply_adds_per_instruction=None,
    )  # fmt: skip
    assert verdict(built(), unknown) == BuildVerdict.SAME
    assert verdict(unknown, built()) == BuildVerdict.SAME


def test_the_line_is_one_that_the_base_side_does_not_have(builds: Builds, run: Run) -> None:
    base = built(sectors_over_least=1.5, uncoalesced_lines="mine.cu:8 8;mine.cu:20 2")
    # The edit moved the lines, and added a line that wastes less than the first line.
    new = built(sectors_over_least=2.0, uncoalesced_lines="mine.cu:9 8;mine.cu:12 4;mine.cu:21 2")
    code, out, _ = run(*builds([base], [new]))
    assert code == 1
    assert "sectors_over_least 1.5 → 2 (+33 %) at mine.cu:12" in out


# ---- the command


NO_ACCESSES = dict.fromkeys(
    ("recorder", "sectors_per_request", "sectors_over_least", "bank_conflict_ways")
)


@pytest.mark.parametrize(
    ("facts", "code", "strict", "text"),
    [
        ({"status": Status.ERROR, "reason": "error: no identifier"}, 4, 4, "error: no identifier"),
        ({"registers": 70}, 0, 3, ""),
        ({"registers": 70, "compiler": "13.2"}, 0, 0, "another compiler, NVRTC 13.1 → 13.2: "),
        ({"spill_bytes": 8, "compiler": "13.2"}, 1, 1, "another compiler"),
        (NO_ACCESSES, 0, 0, "g++ did not record 1 row of the new side, so accesses are not "),
    ],
)
def test_a_change_has_an_exit_code_and_another_one_if_strict(
    builds: Builds, run: Run, facts: dict[str, Any], code: int, strict: int, text: str
) -> None:
    sides = builds([built()], [built(**facts)])
    ended, out, _ = run(*sides)
    assert (ended, run(*sides, "--strict")[0], text in out) == (code, strict, True), out


def test_the_other_formats_have_the_same_findings(builds: Builds, run: Run) -> None:
    sides = builds([built(), built("32")], [built(spill_bytes=8), built("32", registers=70)])
    answer = json.loads(run(*sides, "--format", "json")[1])
    assert answer["kind"] == "build"
    assert answer["exit_code"] == 1
    assert answer["counts"]["worse"] == answer["counts"]["changed"] == 1
    (change,) = answer["rows"][0]["changes"]
    assert (change["column"], change["base"], change["new"]) == ("spill_bytes", 0, 8)
    assert "spill_bytes 0 → 8" in run(*sides, "--format", "markdown")[1]
    suites = ET.fromstring(run(*sides, "--format", "junit")[1])  # noqa: S314 # our own
    assert (suites.get("tests"), suites.get("failures"), suites.get("errors")) == ("2", "1", "0")
    assert run(*sides, "--format", "junit", "--strict")[1].count("<failure") == 2


def test_a_gate_that_compared_no_row_is_no_success(builds: Builds, run: Run) -> None:
    skipped = built(status=Status.SKIPPED)
    for base, new in (
        ([skipped], [skipped]),
        ([skipped, built("32")], [skipped, built("64", compiler="NVRTC 13.2")]),
    ):
        for strict in ((), ("--strict",)):
            code, out, _ = run(*builds(base, new), *strict)
            assert (code, "nothing compared: " in out.splitlines()[0]) == (3, True), out


def test_options_and_files_that_do_not_fit_are_refused(
    builds: Builds, run: Run, tmp_path: Path
) -> None:
    both, times = builds([built()], [built()]), str(tmp_path / "times.csv")
    results.write([row("own", 64)], tmp_path / "times.csv")
    results.write([row("own", 64, 1.1)], tmp_path / "more.csv")
    for arguments, said in (
        ((*both, "--allow=x=1"), "--allow"),
        ((*both, "--threshold=2%"), "--threshold"),
        ((both[0], times), "build file"),
        ((both[0], both[0]), "compared with itself"),
        ((times, str(tmp_path / "more.csv"), "--allow", "occupancy=1"), "--allow"),
    ):
        code, _, err = run(*arguments)
        assert (code, said in err) == (2, True)


# ---- the build file


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = [built(reason="=1+1", limited_by="registers;warps"), built("32", occupancy=None)]
    path = tmp_path / "build.csv"
    path.write_bytes(encode(rows))
    assert read(path) == rows


def test_a_row_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "build.csv"
    path.write_bytes(encode([built(), built()]))
    with pytest.raises(UsageError, match="twice"):
        read(path)
