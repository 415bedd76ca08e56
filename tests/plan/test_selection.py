"""`--only` and `--exclude` select rows by terms."""

from dataclasses import replace
from pathlib import Path

import pytest
from samples import sample

from gpubench.errors import UsageError
from gpubench.plan.selection import read_selected, selection
from gpubench.results.row import Row, write

ROWS = [
    sample("naive", "16", 64),
    sample("naive", "64", 1024),
    sample("shared_tile", "16", 1024, compute_mode="tf32"),
    sample("shared_tile", "128x128x8/8x8/s3", 1024, dtype="float64", compute_mode="float64"),
    sample("cublas", "", 1024),
    replace(sample("gemv_warp", "32", 1024), op="gemv", k=1),
    replace(sample("gemv_warp", "32", 1024), op="gemv", m=64, k=1),
]


def kept(only: str | None = None, exclude: str | None = None, rows: list[Row] = ROWS) -> list[int]:
    keep = selection(rows, only, exclude)
    return [index for index, row in enumerate(rows) if keep(row)]


@pytest.mark.parametrize(
    ("only", "rows"),
    [
        ("naive", [0, 1]),
        ("*_tile, gemv*", [2, 3, 5, 6]),
        ("tf32", [2]),
        ("fp64", [3]),
        ("1024", [1, 2, 3, 4, 5]),
        ("64..1024:x2", [0, 1, 2, 3, 4, 5]),
        ("64x1024", [6]),
        ("16", [0, 2]),
        ("128x*", [3]),
    ],
)
def test_a_term_is_a_variant_a_dtype_a_size_or_a_tile(only: str, rows: list[int]) -> None:
    assert kept(only) == rows
    assert kept(exclude=only) == [index for index in range(len(ROWS)) if index not in rows]


def test_terms_of_a_kind_are_alternatives_and_all_kinds_must_hold() -> None:
    assert kept("naive,shared_tile,1024") == [1, 2, 3]
    assert kept("naive,shared_tile,1024,16") == [2]


def test_exclude_removes_the_rows_that_any_term_matches() -> None:
    assert kept(exclude="naive,float64") == [2, 4, 5, 6]
    assert kept("1024", "gemv_*,tile=16") == [1, 3, 4]


def test_a_number_is_a_size_if_a_row_has_it_unless_its_kind_is_named() -> None:
    assert kept("64") == [0]
    assert kept("size=64") == [0]
    assert kept("tile=64") == [1]


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("naif", "--only: unknown variant or dtype 'naif'; did you mean 'naive'?"),
        ("naive,1025", "--only: unknown size or tile '1025'; did you mean '1024'?"),
        ("tile=65", "--only: unknown tile '65'; known: 16, 64"),
        (" ,", "--only: the list is empty"),
        ("naive,float64", "--only: none of 7 rows is left"),
    ],
)
def test_a_term_that_matches_no_row_is_refused(only: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        kept(only)
    assert str(refused.value).startswith(message)


def test_files_are_filtered_together(tmp_path: Path) -> None:
    write(ROWS[:2], tmp_path / "a.csv")
    write(ROWS[2:], tmp_path / "b.csv")
    files = read_selected([tmp_path / "a.csv", tmp_path / "b.csv"], "naive")
    assert [len(rows) for _, rows in files] == [2, 0]
