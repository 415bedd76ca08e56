"""`tune --table` chooses a configuration for each problem, and writes the choices."""

from pathlib import Path
from typing import Any

import pytest
from commandline import call
from samples import printed, sample
from stub import nothing_measured

from gpubench.commands.tune.table import covering, padded_size, table_rows
from gpubench.commands.tune.table_view import table_summary
from gpubench.model import Size
from gpubench.options import read_sweep
from gpubench.plan.problems import ListedProblem
from gpubench.results.row import Row, read
from gpubench.results.tile_table import TileRow
from gpubench.results.tile_table import read as read_table

HERE = ("--device", "cpu", "--dtypes", "int32")  # no library has int32, so a kernel is chosen


def timed(variant: str, tile: str, us: float, n: int = 1024, scatter: float = 0.001) -> Row:
    """Return a row of five rounds around a time."""
    rounds = tuple(us * (1 + scatter * step) for step in (-1.0, 1.0, 0.0, -0.5, 0.5))
    columns: dict[str, Any] = {"rounds": 5, "round_medians_us": rounds}
    return sample(variant, tile, n, us, compute_mode="float32", **columns)


def chosen(rows: list[Row], padded: dict[int, int] | None = None) -> list[TileRow]:
    sizes: dict[tuple[Size, str], Size] = {}
    new = dict(padded or {})
    for row in rows:
        if row.n not in new.values():
            sizes[row.numbers, "float32"] = (new.get(row.n, row.n),) * 3
    return table_rows(rows, sizes, {}, 0.01)


def test_among_ties_a_configuration_that_other_problems_need_is_taken() -> None:
    fast_at_one = [timed("naive", "8", 100.0), timed("naive", "16", 100.4)]
    fast_at_other = [timed("naive", "16", 50.0, 512), timed("naive", "8", 60.0, 512)]
    rows = chosen([*fast_at_one, *fast_at_other])
    assert [(row.size, row.tile, row.ties) for row in rows] == [("1024", "16", 2), ("512", "16", 1)]


def test_a_configuration_that_is_not_shown_to_be_slower_is_no_tie_beyond_two_margins() -> None:
    far = timed("naive", "16", 104.0, scatter=0.2)
    assert [row.ties for row in chosen([timed("naive", "8", 100.0), far])] == [1]
    near = timed("naive", "16", 101.5, scatter=0.2)
    assert [row.ties for row in chosen([timed("naive", "8", 100.0), near])] == [2]


def test_each_problem_takes_the_fastest_of_the_configurations_that_cover_all() -> None:
    a, b, c = (timed("naive", tile, 100.0 + place) for place, tile in enumerate("123"))
    assert covering([[a, b], [b], [b, c], [c]]) == [b, b, b, c]
    assert covering([]) == []


def test_the_library_is_named_only_where_it_is_shown_to_be_faster() -> None:
    library = timed("cublas", "", 100.0)
    (won,) = chosen([library, timed("naive", "8", 110.0), timed("cublaslt", "", 105.0)])
    assert (won.variant, won.tile, won.ties, won.library) == ("cublas", "", None, "cublas")
    assert won.ratio == pytest.approx(1 / 1.1)
    (equal,) = chosen([library, timed("naive", "8", 100.5)])
    assert (equal.variant, equal.tile, equal.library_us) == ("naive", "8", 100.0)
    assert (equal.ratio_low or 9) < (equal.ratio or 0) < (equal.ratio_high or 0)
    (alone,) = chosen([library])
    assert (alone.variant, alone.ratio) == ("cublas", None)


def test_a_padded_problem_has_no_row_and_becomes_a_hint_if_it_is_faster() -> None:
    odd, padded = timed("naive", "8", 112.0, 1001), timed("naive", "16", 100.0, 1008)
    (row,) = chosen([odd, padded], {1001: 1008})
    assert row.hint == "pad M to 1008, N to 1008, K to 1008: 12 % faster"
    assert (row.n, row.tile) == (1001, "8")
    (row,) = chosen([odd, timed("naive", "16", 111.9, 1008)], {1001: 1008})
    assert row.hint is None


@pytest.mark.parametrize(
    ("op", "dtype", "layouts", "size", "padded"),
    [
        ("gemm", "bfloat16", None, (7, 1003, 1001), (7, 1008, 1008)),
        ("gemm", "float32", None, (7, 1003, 1000), (7, 1004, 1000)),
        ("gemm", "float32", "tn", (7, 1003, 1001), (8, 1004, 1001)),
        ("gemm", "int8", "tn", (7, 1008, 1001), (7, 1008, 1008)),
        ("gemm", "float8_e4m3", None, (7, 1008, 1001), (7, 1008, 1008)),
        ("gemv", "float32", None, (7, 1003, 1), (7, 1003, 1)),
    ],
)
def test_rows_of_matrices_are_padded_to_16_bytes(
    op: str, dtype: str, layouts: str | None, size: Size, padded: Size
) -> None:
    m, n, k = size
    listed = ListedProblem(name="a", m=m, n=n, k=k, dtype=dtype)
    assert padded_size(read_sweep({"op": op, "layouts": layouts}), listed) == padded


def test_the_printed_table_fits_80_columns() -> None:
    tile = "128x256x64/s4/cluster=2x1/group=8/pdl=0"
    many = [timed("wgmma_cluster", tile, 100.0 + n, n) for n in range(1000, 1100)]
    text = printed(*table_summary(chosen([*many, timed("cublas", "", 99.0, 1000)])), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "and 40 more in the CSV" in text
    assert text.startswith(f"1: wgmma_cluster {tile} (")


def test_a_table_is_written_and_a_sweep_takes_its_tiles(tmp_path: Path) -> None:
    with nothing_measured():
        words = ("--sizes", "8,9x10x12", "--rounds", "3", "-o", "rounds.csv")
        done = call(tmp_path, "tune", *HERE, "--table", "best.csv", *words)
        assert done.code == 0, done
        rows = read_table(tmp_path / "best.csv")
        assert [row.size for row in rows] == ["8", "9x10x12"]
        assert all(row.rounds == 3 and row.configurations for row in rows)
        assert {row.rounds for row in read(tmp_path / "rounds.csv")} == {3}
        assert "2 problems in " in done.out
        assert done.files == ["best.csv", "rounds.csv"]
        refused = call(tmp_path, "tune", *HERE, "--table", "best.csv", "--sizes", "8")
        assert (refused.code, refused.err) == (
            2,
            "gpubench: --table: best.csv exists; --force overwrites it\n",
        )
        text = (tmp_path / "best.csv").read_text(encoding="utf-8")
        for row in rows:
            text = text.replace(f",{row.variant},{row.tile},", ",cpu_tile,3,")
        (tmp_path / "best.csv").write_text(text, encoding="utf-8")
        words = ("--sizes", "8,64", "--variants", "cpu_tile", "--rounds", "1", "-o", "a.csv")
        assert call(tmp_path, "sweep", *HERE, *words, "--tiles", "best.csv").code == 0
    assert {row.tile for row in read(tmp_path / "a.csv")} == {"3"}


def test_a_budget_that_round_1_used_up_leaves_three_rounds_unless_rounds_are_named(
    tmp_path: Path,
) -> None:
    for words, rounds in ((), 3), (("--rounds", "4", "--force"), 4):
        with nothing_measured():
            sizes = ("--sizes", "8,12,16", "--budget", "1", "-o", "rounds.csv")
            done = call(tmp_path, "tune", "cpu_naive", *HERE, "--table", "best.csv", *sizes, *words)
        assert done.code == 0, done
        assert {row.rounds for row in read(tmp_path / "rounds.csv")} == {rounds}


def test_a_library_is_not_counted_among_the_configurations_of_a_table(tmp_path: Path) -> None:
    words = ("--device", "cpu", "--sizes", "8", "--rounds", "3", "-o", "rounds.csv")
    with nothing_measured():
        done = call(tmp_path, "tune", "cpu_tile", *words, "--table", "best.csv")
        own = ("--variants", "cpu_tile", "--tiles", "auto", "-o", "tiles.csv")
        swept = call(tmp_path, "sweep", *words[:4], *own)
    assert (done.code, swept.code) == (0, 0), (done, swept)
    (row,) = read_table(tmp_path / "best.csv")
    assert row.library == "cpu_blas"
    assert row.configurations == len(read(tmp_path / "tiles.csv"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--table: add --sizes"),
        (("--sizes", "8", "--rounds", "2"), "--rounds: --table needs at least 3 rounds"),
        (("--sizes", "8", "--cache", "both"), "--cache: name one value with --table"),
        (("--sizes", "8", "--where", "edge > 1"), "--table: leave out --where"),
        (("--sizes", "8", "-o", "t.csv"), "t.csv is also the file of --sizes or --output"),
        (("--sizes", "8", "--table", "t.txt"), "--table: 't.txt' does not end in .csv"),
    ],
)
def test_what_a_table_cannot_have_is_refused_in_a_line(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = call(tmp_path, "tune", "--device", "cpu", "--table", "t.csv", *words)
    assert (done.code, done.out, done.files) == (2, "", [])
    assert message in done.err
    assert done.err.count("\n") == 1


def test_a_list_of_problems_is_never_overwritten_by_its_table(tmp_path: Path) -> None:
    text = "name,m,n,k\na,8,8,8\n"
    (tmp_path / "model.csv").write_text(text, encoding="utf-8")
    words = ("--sizes", "model.csv", "--table", "model.csv", "--force")
    assert call(tmp_path, "tune", "--device", "cpu", *words).code == 2
    assert (tmp_path / "model.csv").read_text(encoding="utf-8") == text


def test_a_dry_run_lists_the_points_of_the_first_round(tmp_path: Path) -> None:
    done = call(tmp_path, "tune", *HERE, "--table", "t.csv", "--sizes", "8", "--dry-run")
    assert (done.code, done.files) == (0, [])
    assert "cpu_tile" in done.out


@pytest.mark.parametrize("sizes", ["8..40", "8"])
def test_an_interrupted_command_writes_no_table(tmp_path: Path, sizes: str) -> None:
    words = ("--sizes", sizes, "--rounds", "50", "-o", "a.csv")
    with nothing_measured():  # it raises Ctrl-C after forty visits
        done = call(tmp_path, "tune", *HERE, "--table", "t.csv", *words)
    assert done.code == 130
    assert done.err.endswith("interrupted: there is no table\n")
    assert done.files == ([] if sizes == "8..40" else ["a.csv"])
