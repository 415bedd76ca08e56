"""Which points `--rerun` measures, and for which side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import measured, point

from gpubench.commands.diff import rerun as diff_rerun
from gpubench.commands.diff.compare import compare
from gpubench.commands.diff.input import Key, Table
from gpubench.commands.diff.rerun import rerun
from gpubench.commands.diff.verdicts import Comparison, Verdict
from gpubench.row import Row

QUIET = tuple(100 + 0.1 * number for number in range(10))
ROUGH = (100.0, 130.0, 90.0, 110.0, 105.0, 140.0, 95.0, 101.0, 99.0, 120.0)


def row(size: int, rounds: Sequence[float], source: str) -> Row:
    one = measured(100.0, point(size=(size, size, size)))
    return replace(one, round_medians_us=";".join(map(repr, rounds)), source_hash=source)


def table(name: str, *rows: Row) -> Table:
    return Table(rows=rows, files=(Path(name),) * len(rows))


def judged(base: Table, new: Table) -> Comparison[Key]:
    return compare(base.sides, new.sides, is_blas=lambda _key: False)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], int]]:
    """The sizes and rounds that were measured: always 100 µs, or a little more."""
    calls: list[tuple[list[int], int]] = []

    def measure(rows: Sequence[Row], rounds: int, _watcher: object) -> list[Row]:
        calls.append(([one.m for one in rows], rounds))
        times = [100 + 0.1 * number for number in range(rounds)]
        return [row(one.m, times, "here") for one in rows]

    monkeypatch.setattr(diff_rerun, "measure_again", measure)
    monkeypatch.setattr(diff_rerun, "source_hashes", lambda: {("gemm", "fake"): "here"})
    return calls


def test_a_point_that_both_sides_share_is_measured_for_both_in_turns(
    asked: list[tuple[list[int], int]],
) -> None:
    base = table("base.csv", row(1, ROUGH, "here"), row(2, QUIET, "here"))
    new = table("new.csv", row(1, ROUGH[::-1], "here"), row(2, QUIET[::-1], "here"))
    new = replace(new, rows=(row(1, [1.03 * time for time in ROUGH], "here"), new.rows[1]))
    comparison = judged(base, new)
    assert [one.verdict for one in comparison.findings.values()] == ["ambiguous", "same"]

    base, new, notes = rerun(comparison, base, new)
    assert asked == [([1], 20)]
    key = base.rows[-1].key
    assert base.sides[key].rounds_us == pytest.approx([100 + 0.2 * n for n in range(10)])
    assert new.sides[key].rounds_us == pytest.approx([100.1 + 0.2 * n for n in range(10)])
    assert judged(base, new).counts == {Verdict.SAME: 2}
    assert "the same kernels for both sides, in turns, 10 rounds or more each" in notes[0]


def test_rounds_join_the_new_side_where_only_its_kernels_are_here(
    asked: list[tuple[list[int], int]],
) -> None:
    base = table("base.csv", row(1, ROUGH, "old"))
    new = table("new.csv", row(1, [1.03 * time for time in ROUGH], "here"))
    base, new, notes = rerun(judged(base, new), base, new)
    assert asked == [([1], 10)]
    (key,) = base.sides
    assert len(base.sides[key].rounds_us) == 10
    assert list(map(len, new.sides[key].sweeps_us)) == [10, 10]
    assert "added 10 rounds or more to the new side of 1 point" in notes[0]


def test_a_point_of_other_kernels_is_left_and_said_to_be(
    asked: list[tuple[list[int], int]],
) -> None:
    base = table("base.csv", row(1, ROUGH, "here"))
    new = table("new.csv", row(1, [1.03 * time for time in ROUGH], "newer"))
    before = judged(base, new)
    base, new, notes = rerun(before, base, new)
    assert not asked
    assert judged(base, new) == before
    assert "leaves 1 ambiguous point" in notes[0]
