"""`gpubench convert`: other tools read what it writes, and gpubench reads what NVBench writes."""

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from commandline import call
from newcomer import PAGES, REPOSITORY
from samples import sample

from gpubench.commands.convert.formats import as_benchmarks
from gpubench.results.row import read, write

sys.path.insert(0, str(PAGES))
import make_schemas

H200 = REPOSITORY / "results" / "h200" / "sweep.csv"
SPEC = find_spec("cuda.bench")
assert SPEC
THEIRS = Path(SPEC.origin or "").parent / "scripts"


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Every 20th row of a sweep on an H200, and a row of each status."""
    rows = read(H200)[::20]
    lost = [replace(rows[0], tile=f"{n}", status=status, reason=f"{status}, why", median_us=None)
            for n, status in enumerate(("wrong", "error", "skipped"), 1)]  # fmt: skip
    write([*rows, *lost], tmp_path / "few.csv")
    return tmp_path / "few.csv"


def converted(path: Path, to: str, name: str) -> Path:
    done = call(path.parent, "convert", str(path), "--to", to, "-o", name)
    assert (done.code, done.out, done.err) == (0, "", "")
    return path.parent / name


def their_times(path: Path) -> dict[tuple[str, str], list[float]]:
    """NVBench's times in microseconds by benchmark and cache, in the order of the states."""
    times: dict[tuple[str, str], list[float]] = {}
    for benchmark in json.loads(path.read_text())["benchmarks"]:
        for state in benchmark["states"]:
            for summary in state["summaries"] or ():
                if summary["tag"].endswith("/time/gpu/mean"):
                    cache = "cold" if "cold" in summary["tag"] else "hot"
                    us = 1e6 * float(summary["data"][0]["value"])
                    times.setdefault((benchmark["name"], cache), []).append(us)
    return times


def test_show_has_the_times_of_nvbenchs_own_file(tmp_path: Path) -> None:
    path = THEIRS / "test_ref.json"  # written by NVBench: two GPUs, int, float and type axes
    times: dict[tuple[str, str], list[float]] = {}
    for row in (rows := read(path)):
        if row.median_us:
            times.setdefault((row.op, row.cache), []).append(row.median_us)
    assert times == their_times(path)
    assert len(times) == 10
    assert {row.notes for row in rows if row.median_us} == {
        "the time is NVBench's mean; the file has no median"
    }
    skipped = [row for row in rows if row.status == "skipped"]
    assert len(skipped) == 38
    assert skipped[0].reason == "Not a conversion: InputType == OutputType."
    assert len({row.key for row in rows}) == len(rows)
    done = call(tmp_path, "show", str(path), "--only", "Device=1 T=F64")
    assert "copy_type_sweep 1 on Quadro GV100, Quadro GP100, cold cache" in done.out
    assert "1.048 ms" in done.out
    assert "NVBench's mean" in done.out


def newer(path: Path) -> dict[str, Any]:
    """A file as NVBench 0.3 writes it: with a median in a summary, or with none."""
    whole: dict[str, Any] = json.loads((THEIRS / "test_ref.json").read_text())
    whole["devices"], benchmark = whole["devices"][:1], whole["benchmarks"][2]
    whole["benchmarks"] = [benchmark]
    benchmark["name"], benchmark["states"] = "gemm", benchmark["states"][:2]
    axes = {"N": "512", "M": "256"}
    with_median, without = benchmark["states"]
    for state in benchmark["states"]:
        state["axis_values"] = [
            {"name": name, "type": "int64", "value": text} for name, text in axes.items()
        ]
    tag = "nv/cold/time/gpu/median"
    with_median["summaries"].append(
        {"tag": tag, "data": [{"name": "value", "type": "float64", "value": "0.0009"}]}
    )
    without["axis_values"].append({"name": "Tile", "type": "string", "value": "16"})
    path.write_text(json.dumps(whole))
    return whole


def test_the_time_is_the_median_or_else_the_mean(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    newer(path)
    first, second = (row for row in read(path) if row.cache == "cold")
    assert first.median_us == pytest.approx(900)
    assert first.notes is None
    assert "mean" in (second.notes or "")
    assert (first.op, first.m, first.n, first.k, first.variant) == ("gemm", 256, 512, 1, "gemm")
    assert second.tile == "16"


def state(text: str) -> str:
    return f'{{"benchmarks": [{{"name": "b", "states": [{{{text}}}]}}]}}'


VALUE = '[{"name": "value", "value": "x"}]'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "a.json: not a JSON file of NVBench: "),
        ("[" * 100_000, "a.json: not a JSON file of NVBench: "),
        ('{"benchmarks": [{"name": 3, "states": []}]}', "Expected `str`, got `int`"),
        ('{"benchmarks": []}', "a.json: the file has no rows"),
        (
            state('"axis_values": [{"name": "M", "value": 0}]'),
            "a.json, benchmark 'b', state 0: '0' in column 'm' is not a whole number from 1",
        ),
        (
            state(f'"summaries": [{{"tag": "nv/cold/time/gpu/mean", "data": {VALUE}}}]'),
            "'x' in column 'median_us' is not a number",
        ),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    done = call(tmp_path, "show", "a.json")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err


def test_the_form_of_github_action_benchmark_has_each_point_under_a_name_of_its_own() -> None:
    rows = [sample(), sample(tile="8"), sample(cache="hot"), sample(status="wrong", tile="4")]
    done = json.loads(as_benchmarks(rows))
    assert [entry["name"] for entry in done][2].endswith("float32, hot")
    assert len({entry["name"] for entry in done}) == 3  # a wrong point has no time
    assert all(entry["value"] == rows[0].median_us for entry in done)
    assert {entry["unit"] for entry in done} == {"µs"}


def test_convert_overwrites_nothing_without_force(few: Path) -> None:
    (few.parent / "a.json").write_text("mine")
    words = ("convert", "few.csv", "--to", "json", "-o", "a.json")
    done = call(few.parent, *words)
    assert (done.code, done.err) == (
        2,
        "gpubench: --output: a.json exists; --force overwrites it\n",
    )
    assert call(few.parent, *words, "--force").code == 0
    assert json.loads((few.parent / "a.json").read_text())["format"] == 1


# ---- the schemas


SCHEMAS = make_schemas.schemas()


def test_the_schemas_are_those_of_the_classes() -> None:
    written = {path.name: json.loads(path.read_text()) for path in make_schemas.FOLDER.iterdir()}
    assert written == SCHEMAS


def test_what_is_written_for_programs_fits_its_schema(few: Path) -> None:
    rows = json.loads(converted(few, "json", "rows.json").read_text())
    done = call(
        few.parent, "diff", str(H200), str(H200.parent / "sweep_again.csv"), "--format", "json"
    )
    diff = json.loads(done.out)
    assert len(diff["points"]) > 100
    for name, document, part in (("rows-1.json", rows, "rows"), ("diff-1.json", diff, "points")):
        check = jsonschema.Draft202012Validator(SCHEMAS[name])
        check.check_schema(SCHEMAS[name])
        check.validate(document)
        for damage in ({"m": 0}, {"m": "64"}, {"unknown": 1}):
            assert not check.is_valid({**document, part: [document[part][0] | damage]})
        assert not check.is_valid(document | {"format": 2})
