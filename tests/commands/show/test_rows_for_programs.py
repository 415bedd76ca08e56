"""Files that `gpubench show` writes for other tools."""

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from commandline import call
from newcomer import REPOSITORY, RESEARCH

from gpubench.results.row import read, write

sys.path.insert(0, str(RESEARCH))
import make_schemas

H200 = REPOSITORY / "results" / "h200" / "sweep.csv"


@pytest.fixture
def few_rows(tmp_path: Path) -> Path:
    """A file with every 20th row of a sweep on an H200, and a row of each status."""
    rows = read(H200)[::20]
    lost = [replace(rows[0], tile=f"{n}", status=status, reason=f"{status}, why", median_us=None)
            for n, status in enumerate(("wrong", "error", "skipped"), 1)]  # fmt: skip
    write([*rows, *lost], tmp_path / "few.csv")
    return tmp_path / "few.csv"


def written(path: Path, name: str) -> Path:
    done = call(path.parent, "show", str(path), "-o", name)
    assert (done.code, done.out, done.err) == (0, "", "")
    return path.parent / name


def test_nothing_is_overwritten_without_force(few_rows: Path) -> None:
    (few_rows.parent / "a.json").write_text("mine")
    words = ("show", "few.csv", "-o", "a.json")
    done = call(few_rows.parent, *words)
    assert (done.code, done.err) == (
        2,
        "gpubench: --output: a.json exists; --force overwrites it\n",
    )
    assert call(few_rows.parent, *words, "--force").code == 0
    assert json.loads((few_rows.parent / "a.json").read_text())["format"] == 2


def test_rows_are_written_again_as_they_were_read(few_rows: Path) -> None:
    assert read(written(few_rows, "again.csv")) == read(few_rows)
    chosen = call(few_rows.parent, "show", "few.csv", "--format", "csv", "--only", "shared_tile")
    assert {line.split(",")[1] for line in chosen.out.splitlines()[1:]} == {"shared_tile"}


def test_a_file_whose_name_ends_in_gz_is_compressed_and_can_be_shown(few_rows: Path) -> None:
    path = written(few_rows, "again.csv.gz")
    assert gzip.decompress(path.read_bytes()) == written(few_rows, "again.csv").read_bytes()
    assert read(path) == read(few_rows)


def test_tables_in_a_file_are_those_of_the_terminal(few_rows: Path) -> None:
    shown = call(few_rows.parent, "show", "few.csv").out
    assert written(few_rows, "tables.txt").read_text() == shown
    in_file = written(few_rows, "tables.md").read_text()
    assert in_file == call(few_rows.parent, "show", "few.csv", "--format", "markdown").out
    assert "| --- " in in_file


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("-o x.xls", "--output: add --format, or end the name in .txt, .md, .csv, .json"),
        ("few.csv --format json", "--format: json takes one file, and no --sort or --top"),
        ("--format csv --top 3", "--format: csv takes one file, and no --sort or --top"),
    ],
)
def test_a_format_that_does_not_fit_is_refused(few_rows: Path, words: str, refused: str) -> None:
    done = call(few_rows.parent, "show", "few.csv", *words.split())
    assert (done.code, done.err) == (2, f"gpubench: {refused}\n")
    assert not (few_rows.parent / "x.xls").exists()


# ---- the schemas


SCHEMAS = make_schemas.schemas()


def test_the_schemas_are_those_of_the_classes() -> None:
    on_disk = {path.name: json.loads(path.read_text()) for path in make_schemas.FOLDER.iterdir()}
    stale = [name for name in {*on_disk, *SCHEMAS} if on_disk.get(name) != SCHEMAS.get(name)]
    if stale:
        pytest.fail(
            f"not up to date in docs/schema: {sorted(stale)}; run 'doit pages'", pytrace=False
        )


def test_files_for_programs_fit_their_schemas(few_rows: Path) -> None:
    rows = json.loads(written(few_rows, "rows.json").read_text())
    done = call(
        few_rows.parent, "diff", str(H200), str(H200.parent / "sweep_again.csv"), "--format", "json"
    )
    diff = json.loads(done.out)
    assert len(diff["points"]) > 100
    for name, document, part in (("rows-2.json", rows, "rows"), ("diff-1.json", diff, "points")):
        check = jsonschema.Draft202012Validator(SCHEMAS[name])
        check.check_schema(SCHEMAS[name])
        check.validate(document)
        for damage in ({"m": 0}, {"m": "64"}, {"unknown": 1}):
            assert not check.is_valid({**document, part: [document[part][0] | damage]})
        assert not check.is_valid(document | {"format": 0})
