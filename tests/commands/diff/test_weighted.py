"""`gpubench diff --weights`: the weighted total of a list of problems."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from diffs import Run, Write, row, rows

from gpubench.results.row import Row

LIST = "name,m,n,k,weight\nshort,64,64,64,{0}\nmiddle,128,128,128,1\nlong,256,256,256,1\n"


@pytest.fixture
def problems(tmp_path: Path) -> Callable[..., str]:
    def written(weight: float = 1.0, more: str = "") -> str:
        path = tmp_path / "model.csv"
        path.write_text(LIST.format(weight) + more)
        return str(path)

    return written


def test_a_total_finds_a_slow_down_that_no_point_may_be_called_slower_for(
    file: Write, run: Run, problems: Callable[..., str]
) -> None:
    base, new = file("base.csv", rows()), file("new.csv", rows(own=1.015))
    assert run(base, new)[0] == 0
    code, out, _ = run(base, new, "--weights", problems())
    assert code == 1
    first = out.splitlines()[0]
    assert first.startswith("slower: the weighted total of own float32 +1.50 % (+1.")
    assert first.endswith(" slower; 9 same of 9 points")
    (other,) = (line for line in out.splitlines() if "other float32" in line)
    assert other.startswith("weighted total of 3 problems: other float32 ")
    assert other.endswith(" %) same")
    junit = run(base, new, "--weights", problems(), "--format", "junit")[1]
    assert junit.count("<failure") == 1
    assert run(base, new, "--weights", problems(), "--threshold", "8%")[0] == 0


def test_a_problem_counts_as_often_as_the_list_has_it(
    file: Write, run: Run, problems: Callable[..., str]
) -> None:
    slow = [*rows()[:3], row("own", 64, 1.04), *rows()[4:]]
    base, new = file("base.csv", rows()), file("new.csv", slow)
    for weight in (2.0, 1e-6):
        out = run(base, new, "--weights", problems(weight), "--format", "json")[1]
        (own,) = (each for each in json.loads(out)["totals"] if each["kernel"] == "own float32")
        assert own["ratio"] == pytest.approx(1 + 0.04 * weight / (weight + 2), abs=1e-4)
        assert own["ratio_low"] < own["ratio"] < own["ratio_high"]


def test_only_the_fastest_tile_of_the_base_counts(
    file: Write, run: Run, problems: Callable[..., str]
) -> None:
    def tiled(factor: float) -> list[Row]:
        slow = [replace(row("own", size, 3.0 * factor), tile="8") for size in (64, 128, 256)]
        return [*rows(), *slow]

    base, new = file("base.csv", tiled(1.0)), file("new.csv", tiled(1.5))
    out = run(base, new, "--weights", problems(), "--format", "json")[1]
    assert {each["verdict"] for each in json.loads(out)["totals"]} == {"same"}


def test_a_list_that_no_kernel_has_is_refused(
    file: Write, run: Run, problems: Callable[..., str]
) -> None:
    base, new = file("base.csv", rows()), file("new.csv", rows(own=1.01))
    code, out, err = run(base, new, "--weights", problems(more="huge,512,512,512,1\n"))
    assert (code, out) == (2, "")
    reason = "no kernel has times of all problems; the time of 'huge' is missing"
    assert err == f"gpubench: --weights: {reason}\n"


def test_a_list_of_another_dtype_is_refused_with_this_reason(
    file: Write, run: Run, tmp_path: Path
) -> None:
    base, new = file("base.csv", rows()), file("new.csv", rows(own=1.01))
    (tmp_path / "other.csv").write_text("name,m,n,k,dtype\na,64,64,64,float64\n")
    code, _, err = run(base, new, "--weights", str(tmp_path / "other.csv"))
    assert code == 2
    assert err.endswith("no kernel has times of all problems; the list has no problem in float32\n")


def test_junit_counts_an_open_total_as_an_open_point(
    file: Write, run: Run, problems: Callable[..., str]
) -> None:
    base, new = file("base.csv", rows()), file("new.csv", rows(own=1.005))
    words = (base, new, "--weights", problems(), "--format", "junit")
    code, out, _ = run(*words)
    assert (code, out.count("<failure"), out.count("<skipped")) == (0, 0, 1)
    code, out, _ = run(*words, "--strict")
    assert (code, out.count("<failure"), out.count("<skipped")) == (3, 1, 0)


def test_totals_of_points_that_differ_in_another_column_have_different_names(
    file: Write, run: Run, problems: Callable[..., str]
) -> None:
    def both(**factors: float) -> list[Row]:
        return [*rows(), *(replace(each, cache="hot") for each in rows(**factors))]

    base, new = file("base.csv", both()), file("new.csv", both(own=1.2))
    out = run(base, new, "--weights", problems(), "--format", "json")[1]
    verdicts = {each["kernel"]: each["verdict"] for each in json.loads(out)["totals"]}
    assert verdicts == {
        "own float32 cold": "same",
        "other float32 cold": "same",
        "own float32 hot": "slower",
        "other float32 hot": "same",
    }
