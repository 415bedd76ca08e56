"""The CSV of rows is written, read back, merged, or refused."""

import csv
import gzip
import re
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import pandas as pd
import pytest
from fakes import failed, measured, point, variant
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubench.commands.show.view import as_json
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.results import row as table
from gpubench.results.columns import MAX_TEXT, MAX_VALUE, MIN_VALUE, in_range
from gpubench.results.row import COLUMNS, KEY, NAMES, REQUIRED, Row, read, write
from gpubench.text import clean

RANGES = {each.name: each.metadata["range"] for each in COLUMNS}
HINTS = {name: hint for name, hint in get_type_hints(Row).items() if name in NAMES}

# Formulas of spreadsheets are as likely as all other texts: lone surrogates, NUL, line ends.
texts = st.text(st.sampled_from("='+-@\"\n\r\0\udcff") | st.characters()).filter(
    lambda text: clean(text).lower() != "nan"  # pandas writes a missing number as nan
)
hostile = st.sampled_from([0.0, -1.0, 1e-300, 1e300, -(10**400), 10**400]) | st.floats()
times = st.floats(MIN_VALUE, MAX_VALUE) | st.floats()


def column(name: str) -> st.SearchStrategy[Any]:
    hint = HINTS[name]
    low, high = RANGES[name]
    if name == "round_medians_us":
        return st.lists(times).map(tuple)
    if name == "tile":  # a numeric tile has another range
        return texts.filter(lambda text: not clean(text).lstrip("+-").replace(".", "").isdecimal())
    if hint is str:
        return texts
    kind = next(kind for kind in (*get_args(hint), hint) if kind is not NoneType)
    if kind is str:
        return st.none() | texts.filter(bool)  # an empty text counts as missing
    if kind is int:
        numbers = st.integers(int(low), int(high))
    else:
        numbers = st.floats(max(low, -MAX_VALUE), min(high, MAX_VALUE))
    return numbers if name in KEY else st.none() | numbers | hostile


def readable(name: str, value: object) -> object:
    """Return a value as a file has it: long texts are cut, and numbers out of range are missing."""
    try:
        if name == "round_medians_us":
            return tuple(in_range(us, MIN_VALUE) for us in value)
        if not isinstance(value, str):
            is_float = float in (HINTS[name], *get_args(HINTS[name]))
            if is_float and value is not None:
                value = float(str(value))  # infinity if it exceeds all floats
            number = None if value is None else in_range(value, *RANGES[name])
            return number if is_float or number == int(number or 0) else None
    except ValueError:
        return () if name == "round_medians_us" else None
    return value[:MAX_TEXT] or (value if name in KEY else None)


fields_with_values = st.dictionaries(st.sampled_from(NAMES), st.none(), max_size=6).flatmap(
    lambda chosen: st.fixed_dictionaries({name: column(name) for name in chosen})
)
rows = fields_with_values.map(lambda values: replace(measured(), **values))


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert str(path) in message
    return message


@pytest.fixture
def csv_file(tmp_path: Path) -> Path:
    """The path of a CSV with two rows, one without times."""
    path = tmp_path / "results.csv"
    skipped = failed(Status.SKIPPED, "a reason, with a comma", point(variant(name="other")))
    write([measured(12.5), skipped], path)
    return path


def cells(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def edit(path: Path, line: int, name: str, text: str) -> None:
    """Put `text` into a column of a line; line 1 is the header."""
    lines = cells(path)
    lines[line - 1][NAMES.index(name)] = text
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(rows, max_size=3))
@example([replace(measured(), tile="=1", reason="x" * 200_000)])
def test_rows_with_hostile_values_read_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, written: list[Row]
) -> None:
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    write(written, path)
    expected = [[readable(name, getattr(row, name)) for name in NAMES] for row in written]
    assert [[getattr(row, name) for name in NAMES] for row in read(path)] == expected


def test_a_text_is_cut_where_it_is_read_as_where_it_is_written(csv_file: Path) -> None:
    edit(csv_file, 2, "op", MAX_TEXT * "xy")
    rows = read(csv_file)
    assert len(rows[0].op) == MAX_TEXT
    write(rows, csv_file)
    assert read(csv_file) == rows


def test_the_times_and_seeds_of_a_thousand_rounds_are_kept_whole(tmp_path: Path) -> None:
    times = 10 * [1e30 / 3**number for number in range(100)]
    seeds = ";".join(1000 * [str(2**63 - 1)])
    row = replace(measured(), rounds=1000, round_medians_us=tuple(times), round_seeds=seeds)
    write([row], tmp_path / "a.csv")
    assert read(tmp_path / "a.csv") == [row]
    edit(tmp_path / "a.csv", 2, "round_medians_us", ";".join(MAX_TEXT * ["1.0"]))
    assert "'round_medians_us'" in refusal(tmp_path / "a.csv")


@pytest.mark.parametrize("text", ["\x1b[2J", "a\tb", "a\u2028b", "a\u202eb", "\x7f"], ids=ascii)
def test_text_that_steers_a_terminal_is_blanked_in_files(csv_file: Path, text: str) -> None:
    assert failed(Status.ERROR, text).reason.isprintable()
    edit(csv_file, 2, "device", text)
    assert read(csv_file)[0].device.isprintable()


FORMULAS = ("=1+1", "+x", "-x", "@x", "'=x", "''+x", "=cmd|' /C calc'!A0")


@pytest.mark.parametrize("text", [*FORMULAS, "'quoted'", "a=b", "'", "don't"])
def test_no_text_is_a_formula_in_a_spreadsheet_and_all_read_back(tmp_path: Path, text: str) -> None:
    row = replace(measured(), reason=text, variant=text, temperature_c=-4.5)
    write([row], tmp_path / "a.csv")
    line = dict(zip(*cells(tmp_path / "a.csv"), strict=True))
    guard = "'" if text in FORMULAS else ""
    assert line["reason"] == line["variant"] == guard + text
    assert line["temperature_c"] == "-4.5"  # a number, not a formula
    assert read(tmp_path / "a.csv") == [row]


def test_every_column_has_a_group_and_a_meaning_and_groups_stand_together() -> None:
    groups = [column.metadata["group"] for column in table.COLUMNS]
    assert [group for group, _ in groupby(groups)] == list(dict.fromkeys(groups))
    assert all(column.metadata["meaning"] for column in table.COLUMNS)


@pytest.mark.parametrize("text", ["1e-31", "1e31", "-1", "12 us"])
def test_a_number_that_no_measurement_has_is_refused(csv_file: Path, text: str) -> None:
    edit(csv_file, 2, "median_us", text)
    assert f":2: '{text}' in column 'median_us' is not a number from 0" in refusal(csv_file)


def test_a_missing_number_is_empty_and_never_zero(csv_file: Path) -> None:
    header, _, line = cells(csv_file)
    skipped = dict(zip(header, line, strict=True))
    for name in ("median_us", "gflops", "samples", "percent_of_blas", "max_relative_error"):
        assert skipped[name] == ""


def test_columns_may_have_any_order_and_further_columns_beside_them(csv_file: Path) -> None:
    expected = read(csv_file)
    lines = cells(csv_file)
    with csv_file.open("w", newline="") as file:
        csv.writer(file).writerows([[*line[::-1], "remark"] for line in lines])
    assert read(csv_file) == expected


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_column_is_named(csv_file: Path, name: str) -> None:
    edit(csv_file, 1, name, "something_else")
    assert f"column '{name}' is missing" in refusal(csv_file)
    csv_file.write_bytes(b"")
    assert "the file is empty" in refusal(csv_file)


def test_columns_that_another_version_lacks_are_empty(csv_file: Path) -> None:
    lines = cells(csv_file)
    kept = [number for number, name in enumerate(lines[0]) if name in REQUIRED]
    with csv_file.open("w", newline="") as file:
        csv.writer(file).writerows([[line[number] for number in kept] for line in lines])
    whole, skipped = read(csv_file)
    assert (whole.key, whole.median_us) == (measured().key, 12.5)
    assert skipped.status == Status.SKIPPED
    assert (whole.gflops, whole.device, skipped.reason) == (None, None, None)


def test_a_file_that_pandas_rewrote_is_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    # Tiles and counts in columns with missing values become floats in pandas.
    written = [
        replace(measured(12.5, point(size=(1024, 1024, 1024))), tile="16", registers=40),
        measured(3.0, point(variant(name="blas"))),
        failed(Status.SKIPPED, "why", point(variant(name="other"))),
    ]
    write(written, path)
    for style in ({}, {"na_rep": "NaN"}, {"float_format": "%.6e"}, {"sep": ";"}, {"sep": "\t"}):
        pd.read_csv(path).to_csv(tmp_path / "again.csv", index=False, **style)
        again = read(tmp_path / "again.csv")
        assert [read_row.key for read_row in again] == [read_row.key for read_row in written]
        for read_row, other in zip(again, written, strict=True):
            assert read_row.registers == other.registers
            assert read_row.samples == other.samples
            assert read_row.median_us == pytest.approx(other.median_us)


def test_json_with_many_lines_and_few_rows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    rows = [replace(measured(float(number)), seed=number) for number in range(1, 5001)]
    path.write_bytes(as_json(rows, 2))
    assert read(path) == rows


def test_a_byte_order_mark_and_windows_line_ends_are_read_over(csv_file: Path) -> None:
    expected = read(csv_file)
    csv_file.write_bytes(b"\xef\xbb\xbf" + csv_file.read_bytes().replace(b"\n", b"\r\n"))
    assert read(csv_file) == expected


def test_a_line_of_another_length_is_refused_naming_line_and_column(csv_file: Path) -> None:
    header, line, *_ = csv_file.read_text().splitlines()
    short = ",".join(line.split(",")[:-3])
    csv_file.write_text(f"{header}\n{short}\n")
    assert f":2: the line ends before column '{NAMES[-3]}'" in refusal(csv_file)
    csv_file.write_text(f"{header}\n{line},surplus\n")
    assert ":2: " in refusal(csv_file)


def test_a_file_that_is_no_csv_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    assert "cannot read" in refusal(path)
    path.mkdir()
    assert "cannot read" in refusal(path)
    path.rmdir()
    for content in (b"", b"\n", b"a,b\n1,2\n", b"\x89PNG\r\n\x1a\n\xff\xfe", b'"' * 9):
        path.write_bytes(content)
        assert re.search("not a (gpubench CSV|CSV of a sweep)", refusal(path))
    whole = table.encode([measured()])
    for content in (whole + b"\xff\xfe", whole.decode().encode("utf-16-le"), b"PK\3\4\0\0"):
        path.write_bytes(content)
        assert "it is not text in UTF-8; a spreadsheet can save it as 'CSV UTF-8'" in refusal(path)


def test_a_quotation_mark_that_is_not_closed_is_named_as_the_cause_of_a_long_field(
    csv_file: Path,
) -> None:
    header, line, *_ = csv_file.read_text().splitlines(keepends=True)
    csv_file.write_text(f'{header}"{line}{line * 999}')
    assert "characters; a quotation mark may not be closed" in refusal(csv_file)


def test_a_first_line_with_other_columns_is_quoted(csv_file: Path) -> None:
    csv_file.write_bytes(b"# mine\n" + csv_file.read_bytes())
    assert "column 'op' is missing in the first line, '# mine'" in refusal(csv_file)
    csv_file.write_bytes(table.encode([measured()]).replace(b",tile,", b",op,"))
    assert "column 'tile' is missing in the first line, 'op,variant,backend,op," in refusal(
        csv_file
    )
    csv_file.write_bytes(table.encode([measured()]).replace(b",samples,", b",op,"))
    assert "the first line has column 'op' twice" in refusal(csv_file)


def test_the_frame_is_what_pandas_reads_from_the_file(csv_file: Path) -> None:
    frame = table.frame(read(csv_file))
    assert list(frame.columns) == list(NAMES)
    assert frame["median_us"].tolist()[0] == 12.5
    assert frame["median_us"].isna().tolist() == [False, True]
    # pandas before 3 may read the last bit of a float differently.
    assert pd.read_csv(csv_file)["gflops"][0] == pytest.approx(frame["gflops"][0], rel=1e-15)
    assert pd.read_csv(csv_file)["variant"].tolist() == frame["variant"].tolist()


def test_rounds_over_ten_percent_apart_are_unstable() -> None:
    for medians in ((), (100.0,), (100.0, 110.0, 105.0), (100.0, 110.2, 105.0)):
        is_unstable = 110.2 in medians
        assert replace(measured(), round_medians_us=medians).unstable == is_unstable


def test_a_compressed_file_is_read_and_a_damaged_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    whole = gzip.compress(table.encode([measured(9.0), measured(10.0)]))
    path.write_bytes(whole)
    assert [row.median_us for row in read(path)] == [9.0, 10.0]
    for damaged in (whole[:-20], whole[:40] + b"\0" * 40 + whole[80:]):
        path.write_bytes(damaged)
        assert f"{path}: the compressed file is cut off or damaged" in refusal(path)


@pytest.mark.parametrize(("name", "is_packed"), [("a.csv", True), ("a.csv.gz", False)])
def test_a_file_whose_name_states_a_wrong_compression_is_read(
    tmp_path: Path, name: str, is_packed: bool
) -> None:
    content = table.encode([measured(9.0)])
    (tmp_path / name).write_bytes(gzip.compress(content) if is_packed else content)
    assert [row.median_us for row in read(tmp_path / name)] == [9.0]


def test_columns_that_are_not_asked_for_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write([measured(9.0)], path)
    (row,) = read(path, ("median_us",))
    assert (row.key, row.median_us, row.gflops) == (measured(9.0).key, 9.0, None)


def test_a_file_of_an_older_version_without_further_extents_is_read() -> None:
    older = table.frame([measured()]).drop(columns="extents")
    assert [row.extents for row in table.rows(older)] == [""]
