"""Tables of rows for the terminal."""

import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from fakes import failed, measured, point, variant
from rich.console import Group, RenderableType
from rich.text import Text
from samples import printed

from gpubench.model import Cache, Config, Point, Scope, Status, edges
from gpubench.results.row import Row
from gpubench.view.numbers import milliseconds, spans, time_text
from gpubench.view.row_tables import (
    UNSTABLE_LEGEND,
    best_of,
    best_table,
    results,
    tied_tiles,
    tile_table,
    uncertainty,
)
from gpubench.view.sentences import sentences
from gpubench.view.tables import PIPED_WIDTH, console, plain, table

TILED = variant(name="tiled", tiles=edges(1, 64, because="of a test"))
OTHER = variant(name="other", tiles=edges(1, 64, because="of a test"))


def lines_of(shown: RenderableType) -> list[list[str]]:
    return [words for line in printed(shown).splitlines() if (words := line.split())]


def at(tile: int | None, variant: Any = TILED, **facts: Any) -> Point:
    return point(variant, tile=Config.parse(str(tile)) if tile else None, **facts)


def row_of(tile: int, median_us: float, spread_us: float = 0.0, variant: Any = TILED) -> Row:
    interval = {"ci_low_us": median_us - spread_us, "ci_high_us": median_us + spread_us}
    return measured(median_us, at(tile, variant), **interval)


def test_times_have_four_digits() -> None:
    for time_us, in_ms, with_unit in [
        (None, "", ""),
        (2.0, "0.002000", "2.000 µs"),
        (275.34, "0.2753", "275.3 µs"),
        (999.96, "1.0000", "1000 µs"),
        (1_000.0, "1.000", "1.000 ms"),
        (57_100.0, "57.10", "57.10 ms"),
        (1_204_000.0, "1204", "1.204 s"),
        (310_000_000.0, "3.100e+05", "310.0 s"),
    ]:
        assert (milliseconds(time_us), time_text(time_us)) == (in_ms, with_unit)


def test_consecutive_tiles_are_a_span() -> None:
    for tiles, text in (
        ("", ""),
        ("7", "7"),
        ("1 2 3 8 10 11", "1..3, 8, 10..11"),
        ("32 16x16 17", "32, 16x16, 17"),
        ("1 2 3 1 2 3", "1..3"),  # the tiles of two sizes
    ):
        assert spans(tiles.split()) == text


def test_the_tile_table_is_in_the_order_of_tiles_and_marks_the_best_of_each_variant() -> None:
    rows = [
        row_of(16, 10.0),
        row_of(8, 20.0),
        row_of(100, 30.0),
        row_of(16, 40.0, variant=OTHER),
        row_of(8, 35.0, variant=OTHER),
    ]
    _, _, *lines = lines_of(tile_table(rows))
    assert lines == [
        ["8", "20.00", "µs", "35.00", "µs", "*"],
        ["16", "10.00", "µs", "*", "40.00", "µs"],
        ["100", "30.00", "µs"],
    ]


def test_tiles_whose_intervals_overlap_with_the_best_are_tied() -> None:
    rows = [row_of(8, 10.0, 0.5), row_of(16, 10.4, 0.5), row_of(32, 12.0, 0.5)]
    assert tied_tiles(rows, rows[0]) == ["8", "16"]
    table = printed(tile_table(rows))
    assert "10.00 µs *" in table
    assert "10.40 µs =" in table
    assert "12.00 µs\n" in table.replace(" \n", "\n").replace(" \n", "\n")


def test_the_best_table_is_fastest_first_and_alone_in_a_comparison() -> None:
    rows = [row_of(8, 20.0), row_of(16, 10.0), row_of(4, 5.0, variant=OTHER)]
    header, _, *lines = lines_of(best_table(rows))
    assert [line[:2] for line in lines] == [["other", "4"], ["tiled", "16"]]
    # The peak of a CPU is not known, so the table has no column for it.
    assert "peak" not in header
    shown = printed(results(rows, tiles=False))  # a comparison has no tile table
    assert "tiled, ms" not in shown
    assert "16" in shown


def test_the_watts_of_a_long_run_are_those_of_its_energy() -> None:
    row = replace(row_of(8, 1000.0), state="sustained", joules=0.4, power_w=700.0)
    assert lines_of(best_table([row]))[-1][-1] == "400"


def test_results_have_a_heading_for_each_problem() -> None:
    shown = printed(
        results(
            [
                measured(10.0, at(8)),
                measured(10.0, at(8, size=(32, 32, 32), dtype="int32")),
                measured(10.0, at(8, cache=Cache.HOT, scope=Scope.END_TO_END)),
            ]
        )
    )
    assert "gemm 64x48x32 float32 on Fake CPU, cold cache\n" in shown
    assert "gemm 32 int32 on Fake CPU, cold cache\n" in shown
    assert "gemm 64x48x32 float32 on Fake CPU, hot cache, end-to-end\n" in shown
    assert [unit for unit in shown.split() if unit.endswith("/s")] == [
        "GFLOP/s",
        "GFLOP/s",
        "Gop/s",
    ]


def test_rows_of_two_devices_have_a_heading_each() -> None:
    rows = [row_of(8, 10.0), replace(row_of(8, 20.0, variant=OTHER), device="Other CPU")]
    shown = printed(results(rows))
    assert "gemm 64x48x32 float32 on Fake CPU, cold cache\n" in shown
    assert "gemm 64x48x32 float32 on Other CPU, cold cache\n" in shown
    assert sentences([replace(row, ci_low_us=9.0, ci_high_us=21.0) for row in rows]) == []


def test_what_was_not_measured_is_one_line_for_each_reason() -> None:
    names = [f"kernel{number}" for number in range(10)]
    rows = [
        measured(10.0, at(8)),
        *(failed(Status.SKIPPED, "too many threads", at(tile)) for tile in (33, 34, 35)),
        failed(Status.WRONG, "relative error 1", at(4)),
        failed(Status.ERROR, "does not compile", at(None, variant(name="plain"))),
        *(failed(Status.SKIPPED, "too large", at(8, variant(name=name))) for name in names),
    ]
    lines = printed(results(rows)).splitlines()
    assert f"skipped: {', '.join(names[:8])}, 2 more: too large" in lines
    assert "skipped: tiled 33..35: too many threads" in lines
    assert "wrong: tiled 4: relative error 1" in lines
    assert "error: plain: does not compile" in lines


def test_points_that_lack_memory_share_a_line_whatever_number_of_bytes_was_free() -> None:
    reason = "needs 9,000 bytes of memory, but only {} are free"
    reasons = [reason.format(free) for free in ("8,000", "8,001", "8,000")]
    rows = [failed(Status.SKIPPED, reasons[tile], at(tile + 1)) for tile in range(3)]
    lines = printed(results(rows)).splitlines()
    assert "skipped: tiled 1..3: needs 9,000 bytes of memory, but fewer are free" in lines
    assert f"skipped: tiled 1: {reasons[0]}" in printed(results(rows[:1])).splitlines()


def test_without_a_terminal_nothing_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert console().width == PIPED_WIDTH
    note = "and so on " * PIPED_WIDTH
    console().print(Group(Text("a table"), Text(note)))
    assert capsys.readouterr().out.splitlines() == ["a table", note]
    monkeypatch.setenv("COLUMNS", "300")
    assert console().width == 300


def test_text_of_files_steers_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    named = measured(10.0, at(8, variant(name="[red]a[/red] :cd: [/]\x1b[2J", tiles=TILED.tiles)))
    console().print(results([named, failed(Status.ERROR, "b[1] [bold]c \x1b]0;t\x07", at(4))]))
    grid = table("variant", "idea", left=None)
    grid.add_row("[link=x]y[/link]", "A[k]: [/oops]")
    console().print(grid)
    out = capsys.readouterr().out
    for text in ("[red]a[/red] :cd: [/]", "b[1] [bold]c", "[link=x]y[/link]", "A[k]: [/oops]"):
        assert text in out
    # The only remaining escape sequences are colours of Rich.
    assert set(re.findall(r"\x1b.[^a-zA-Z]*[a-zA-Z]", out)) <= set(
        re.findall(r"\x1b\[[\d;]*m", out)
    )


def test_where_memory_sets_the_pace_the_share_of_a_copy_stands_instead_of_the_peak() -> None:
    row = replace(measured(), op="gemv", m=8, n=9, k=1, gbytes_per_s=1234.5, percent_of_copy=98.7)
    text = printed(results([row]))
    assert "gemv 8x9 float32" in text
    assert "GB/s" in text
    assert re.search(r"% of\n.* copy\n", text)
    assert "GFLOP/s" not in text
    assert " 1,234 " in text
    assert "98.7" in text
    assert " copy\n" not in printed(results([measured()]))
    assert " copy\n" in printed(results([replace(row, op="unknown")]))


def test_a_table_is_written_as_markdown() -> None:
    grid = table("kernel", "figure", left={"kernel"})
    grid.add_row("shared_tile", 0.1 + 0.2)
    grid.add_row(Text("=_a_|<b>"), None)
    assert grid.markdown() == [
        "| kernel | figure |",
        "| --- | ---: |",
        "| shared_tile | 0.30000000000000004 |",
        r"| =\_a\_\|&lt;b> |  |",
    ]


def test_a_table_too_wide_for_the_terminal_is_split_and_no_figure_is_cut() -> None:
    grid = table("variant", "tile", *(f"figure {n}" for n in range(9)), left={"variant", "tile"})
    grid.add_row("shared_tile", "128x128x8/8x8/s3/group=8", *(f"{n},234,567" for n in range(9)))
    text = printed(grid, width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert text.count("shared_tile") > 1
    for n in range(9):
        assert f"figure {n}" in text
        assert f"{n},234,567" in text


def test_only_headings_of_metrics_and_of_percentages_are_broken() -> None:
    grid = table("tile", "register_tile", "% of peak", "sm__cycles_elapsed.max, cycle")
    lines = plain([grid]).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["sm__cycles_"],
        ["%", "of", "elapsed.max"],
        ["tile", "register_tile", "peak", "cycle"],
    ]


def test_the_interval_is_shown_and_with_few_samples_their_number() -> None:
    row = row_of(8, 100.0, 0.5)
    assert uncertainty(row) == "0.5 %"
    assert uncertainty(replace(row, ci_high_us=125.0)) == "25 %"
    assert uncertainty(replace(row, samples=5)) == "n=5"
    assert uncertainty(replace(row, samples=None)) == "0.5 %"  # a file without this column
    assert uncertainty(replace(row, ci_high_us=1e4)) == "> 100 %"
    assert uncertainty(failed(Status.SKIPPED, "why", at(8))) == ""
    assert uncertainty(measured(100.0, at(8))) == "1 round"  # too few for an interval
    assert uncertainty(measured(100.0, at(8), rounds=2)) == "2 rounds"
    assert "n=…: fewer than 6 samples, too few" in printed(results([replace(row, samples=5)]))


def test_every_mark_is_explained_below_and_none_that_is_not_there() -> None:
    exact = [row_of(8, 10.0), row_of(16, 20.0)]
    shown = printed(results(exact))
    assert "* fastest tile of its kernel\n" in shown
    assert "=" not in shown
    wide = printed(results([*exact, row_of(32, 12.0, 3.0)]))
    assert "= may be as fast: its interval overlaps" in wide
    missed = "1 of 3 points missed --precision 0.5 %: ± 25 % in the median, 25 % at most"
    assert missed in wide
    loose = replace(row_of(8, 10.0, 0.1), precision_goal=0.05)  # a row of another sweep
    assert "missed --precision 0.5 %: ± 25 %" in printed(results([loose, row_of(32, 12.0, 3.0)]))
    row = row_of(8, 100.0, 2.0)
    missing = [replace(row, precision_goal=goal).missed_precision for goal in (0.025, 0.015)]
    assert [row.missed_precision, *missing] == [True, False, True]


def test_a_kernel_with_tiles_in_two_tables_has_one_fastest_tile() -> None:
    block = row_of(2, 5.0, 0.1)
    shown = printed(
        results([row_of(8, 10.0, 0.5), row_of(16, 10.4, 0.5), replace(block, tile="16/s2")])
    )
    tables, legend = shown.split("\n* fastest")
    assert (tables.count("*"), tables.count("=")) == (1, 0)
    assert "=" not in legend


def test_rows_that_another_program_wrote_are_shown() -> None:
    rows = [
        replace(row_of(8, 10.0), host="a", percent_of_devices=0.0, percent_of_blas=50.0),
        replace(row_of(16, 20.0), host="b", percent_of_devices=100.0),
    ]
    assert best_of([replace(rows[0], median_us=None), rows[1]]) is rows[1]  # an empty field
    shown = printed(results([replace(row, library=" ") for row in rows]))
    assert re.search(r"% of\n.* BLAS\n", shown)


def test_times_whose_rounds_disagree_are_marked_and_the_mark_is_explained() -> None:
    stable = row_of(8, 100.0)
    unstable = replace(row_of(16, 200.0), round_medians_us=(200.0, 190.0, 230.0))
    for show in (results, partial(results, tiles=False)):
        assert "200.0 µs !" in printed(show([unstable])).replace("*", "")
        assert UNSTABLE_LEGEND in printed(show([stable, unstable]))
        assert "!" not in printed(show([stable]))


@pytest.mark.parametrize(
    ("names", "also"),
    [
        ("a", ""),
        ("ab", " (also true of b)"),
        ("abc", " (also true of 2 other variants)"),
    ],
)
def test_a_note_is_a_sentence_for_one_variant_and_for_several(names: str, also: str) -> None:
    note = "computes in float32;called at fixed addresses; a cold cache was flushed"
    rows = [replace(row_of(8, 10.0, variant=variant(name=name)), notes=note) for name in names]
    line = "a: computes in float32; called at fixed addresses; a cold cache was flushed"
    assert f"\n{line}{also}\n" in printed(results(rows))


def test_speed_ups_over_the_naive_loop_stand_in_a_column_with_a_warning() -> None:
    loop = measured(5_000.0, at(None, variant(name="cpu_naive"), size=(512, 512, 512)))
    fast = measured(10.0, at(8, size=(512, 512, 512)))
    shown = printed(results([loop, fast]))
    assert re.search(r"× *\n.*cpu_naive", shown)
    assert " 500\n" in shown
    hot = replace(loop, cache="hot", median_us=100.0)
    assert " 500\n" in printed(results([loop, hot, fast]))
    assert " 12,346\n" in printed(results([replace(loop, median_us=123_456.0), fast]))
    assert "cpu_naive is slow at powers of two" in shown
    odd = [replace(row, n=500) for row in (loop, fast)]
    assert "powers of two" not in printed(results(odd))
    assert "cpu_naive" not in printed(results([fast]))
    by_columns = replace(loop, layout="column-major: B", median_us=50.0)  # of another problem
    assert " 500\n" in printed(results([loop, by_columns, fast]))


def test_no_tile_is_broken_in_a_narrow_terminal() -> None:
    tile = "128x256x32/16x8/s3/k4"
    listing = table("variant", "best tile", "time", "GFLOP/s", left={"variant", "best tile"})
    listing.add_row("splitk", f"{tile}, {tile}", "18.84 µs", "1,781")
    words = printed(listing, width=48).split()
    assert {word for word in words if "x" in word or "k4" in word} == {tile, f"{tile},"}


def test_text_is_folded_between_words_if_all_words_fit() -> None:
    shown = table(
        "verdict", "workload", "solution", "time", left={"verdict", "workload", "solution"}
    )
    shown.add_row("not decided", "rows=640 is_flat=False", "solution_right", "226.9 µs")
    for width in (49, 55, 60, 70):
        text = printed(shown, width=width)
        assert all(len(line) <= width for line in text.splitlines())
        assert {"is_flat=False", "solution_right", "decided", "µs"} <= set(text.split())
