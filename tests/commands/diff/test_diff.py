"""The command `gpubench diff`: its output, and every exit code."""

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from diffs import Run, Write, failure, row, rows, swapped

from gpubench.commands.diff.findings import DiffVerdict
from gpubench.commands.diff.sides import make_side
from gpubench.model import Status
from gpubench.results.row import KEY, Row, objects, read, write

# ---- exit codes


def test_no_regression_is_exit_0_and_faster_rows_never_fail(file: Write, run: Run) -> None:
    code, out, err = run(file("base.csv", rows()), file("new.csv", rows(own=0.9)))
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "no confirmed regression: 6 same, 3 faster of 9 points"
    assert "faster (3): own at 64 -10.0 %; " in out


def test_a_regression_is_exit_1_and_stands_on_the_first_line(file: Write, run: Run) -> None:
    new = [*rows()[:-1], row("other", 256, 1.05)]
    new[3] = row("own", 64, 1.2)
    code, out, _ = run(file("base.csv", rows()), file("new.csv", new))
    assert code == 1
    lines = out.splitlines()
    assert lines[0] == "slower: 2 of 9 points, by up to 20.0 % (own at 64)"
    worst, second = (number for number, line in enumerate(lines) if line.startswith("o"))
    assert lines[worst].split()[:7] == ["own", "at", "64", "0.1002", "0.1202", "+20.0", "%"]
    assert lines[second].split()[:3] == ["other", "at", "256"]
    assert "+20.0 .. +20.0" in lines[worst]  # the BLAS has the same rounds


def test_what_was_right_and_is_wrong_is_exit_4_even_beside_a_regression(
    file: Write, run: Run
) -> None:
    new = [row for row in rows(own=1.1) if row.label != "other at 64 float32"]
    new.append(failure(Status.WRONG, "relative error 0.3, tolerance 1e-5"))
    code, out, _ = run(file("base.csv", rows()), file("new.csv", new))
    assert code == 4
    assert out.splitlines()[0] == "broken: 1 of 9 points wrong or lost; 3 slower"
    assert "broken: other at 64: wrong: relative error 0.3, tolerance 1e-5" in out


def test_open_points_are_exit_3_only_if_strict(file: Write, run: Run) -> None:
    base, new = file("base.csv", rows()), file("new.csv", rows()[1:])
    assert run(base, new)[0] == 0
    code, out, _ = run(base, new, "--strict")
    assert code == 3
    assert out.splitlines()[0] == "not settled: 8 same, 1 missing of 9 points"
    assert "missing (1): cublas at 64\n" in out
    assert run(base, file("slower.csv", rows(own=1.1)[1:]), "--strict")[0] == 1


ROUGH = (100.0, 130.0, 90.0, 110.0, 105.0, 140.0, 95.0, 101.0, 99.0, 120.0)


Loud = Callable[..., tuple[str, str]]


@pytest.fixture
def loud(file: Write) -> Loud:
    """Return two files with scattering points of these names, 3 % slower in the second file."""

    def written(*names: str, repeats: int = 1) -> tuple[str, str]:
        base, new = rows(), rows()
        for place, name in enumerate(names):
            # Each point has its rounds in another order, so no round is slow at all points.
            rounds = (ROUGH[place % 10 :] + ROUGH[: place % 10]) * repeats
            base.append(row(name, 64, 1.0, rounds))
            new.append(row(name, 64, 1.03, rounds[::-1]))
        return file("base.csv", base), file("new.csv", new)

    return written


def test_ambiguous_points_are_exit_3_if_strict_and_the_settling_command_is_named(
    loud: Loud, run: Run
) -> None:
    # Twice the number of rounds is advised if that exceeds the default number of pairs.
    for repeats, pairs in ((3, "--strict"), (4, "--pairs 80 --strict")):
        code, out, _ = run(*loud("loud", repeats=repeats), "--strict")
        assert code == 3
        assert "ambiguous (1): loud at 64 +3.0 % (" in out
        measured = "--sizes 64 --variants loud,cublas --device cpu"
        assert f"gpubench ab BASE NEW {measured} {pairs}" in " ".join(out.split())


def test_an_interval_that_says_nothing_is_not_shown(file: Write, run: Run) -> None:
    *base, new = (
        file(f"{us}.csv", [replace(row("loud", 64, us / 100, (100.0,)), backend="cpu")])
        for us in (45, 36, 36)
    )
    out = run("--base", *base, "--new", new)[1]
    assert "loud at 64 -10.6 % (two speeds: 0.03600 and 0.04500 ms)" in out
    assert "found in nine of ten" not in out


def test_another_gpu_is_exit_2_unless_it_is_ignored(file: Write, run: Run) -> None:
    base = file("base.csv", rows())
    other = file("new.csv", [replace(row, device="NVIDIA A100") for row in rows()])
    code, out, err = run(base, other)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "NVIDIA H200" in err
    assert "NVIDIA A100" in err
    assert "--ignore-device" in err
    assert run(base, other, "--ignore-device")[0] == 0
    for column, value, named in (
        ("driver", "590.9", "driver 590.9"),
        ("cuda", "12.9", "CUDA 12.9"),
    ):
        code, _, err = run(
            base, file("new.csv", [replace(row, **{column: value}) for row in rows()])
        )
        assert (code, named in err) == (2, True)


def on_gpu(uuid: str, rows: list[Row]) -> list[Row]:
    return [replace(row, device_uuid=uuid) for row in rows]


def test_a_file_of_several_devices_is_refused_with_the_first_two(file: Write, run: Run) -> None:
    mixed = [replace(each, device=f"GPU {number}") for number, each in enumerate(rows())]
    code, _, err = run(file("base.csv", mixed), file("new.csv", rows(own=1.1)))
    assert code == 2
    assert "base.csv was measured on GPU 0, " in err
    assert "base.csv on GPU 1: " in err


def test_another_gpu_of_one_kind_is_said_and_allowed_for(file: Write, run: Run) -> None:
    base = file("base.csv", on_gpu("GPU-1", rows()))
    slow, slower = on_gpu("GPU-2", rows(own=1.05)), on_gpu("GPU-2", rows(own=1.2))
    code, out, err = run(base, file("new.csv", slow))
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "no confirmed regression: 6 same, 3 ambiguous of 9 points"
    assert "the sides ran on different GPUs of one kind" in out
    assert run(base, file("slower.csv", slower))[0] == 1
    two_gpus = file("several.csv", on_gpu("GPU-1;GPU-2", rows()))
    same = file("turned.csv", on_gpu("GPU-2;GPU-1", rows(own=1.05)))
    for arguments in ((base, file("slow.csv", slow), "--ignore-device"), (two_gpus, same)):
        code, out, _ = run(*arguments)
        assert (code, "GPUs of one kind" in out) == (1, False)


def test_gpus_and_clocks_that_some_files_lack_are_unknown(file: Write, run: Run) -> None:
    first, other = file("a.csv", on_gpu("GPU-1", rows())), file("b.csv", rows())
    new = file("c.csv", on_gpu("GPU-1", rows(own=1.05)))
    assert run("--base", first, other, "--new", new)[0] == 1
    lower = dict.fromkeys(("cublas", "own", "other"), 1980 / 1600)
    base, slower = file("d.csv", rows(mhz=1980.0)), file("e.csv", rows(mhz=1600.0, **lower))
    unknown = file("f.csv", rows(**lower))
    assert "9 clock of 9 points" in run(base, slower)[1]
    assert "9 ambiguous of 9 points" in run("--base", base, "--new", slower, unknown)[1]


def test_a_configuration_that_a_race_eliminated_is_missing(file: Write, run: Run) -> None:
    new = swapped(rows(), replace(row("other", 64), status="eliminated"))
    code, out, _ = run(file("base.csv", rows()), file("new.csv", new))
    assert (code, "8 same, 1 missing of 9 points" in out) == (0, True), out


def test_unusable_input_is_one_line_and_exit_2(file: Write, run: Run) -> None:
    untimed = {"status": "skipped", "median_us": None, "round_medians_us": ()}
    files = {
        "BASE": file("base.csv", rows()),
        "NEW": file("new.csv", rows()),
        "FIRST": file("first.csv", rows()[:3]),
        "OTHERS": file("others.csv", rows()[3:]),
        "UNTIMED": file("untimed.csv", [replace(row, **untimed) for row in rows()]),
    }
    files["LINK"] = files["BASE"].replace("base", "link")
    Path(files["LINK"]).symlink_to(files["BASE"])
    for arguments, said in (
        ((), "gpubench diff BASE.csv NEW.csv"),
        (("BASE", "NEW", "NEW"), "one file too many"),
        (("BASE", "nowhere.csv"), "cannot read nowhere.csv"),
        (("--base", "BASE", "LINK", "--new", "NEW"), "named twice"),
        (("BASE", "NEW", "--threshold", "0%"), "--threshold"),
        (("BASE", "NEW", "--format", "markdwn"), "not one of 'text', 'markdown'"),
        (("BASE", "NEW", "--only", "oth"), "unknown variant or dtype 'oth'; did you mean 'other'?"),
        (("FIRST", "OTHERS"), "no point in common"),
        (("UNTIMED", "UNTIMED"), "no point in common that has a time"),
        (("BASE", "NEW", "--exclude", "64,128,256"), "--exclude: none of 18 rows"),
        (("BASE", "NEW", "--output", "NEW"), "is one of the files compared"),
        (("BASE", "NEW", "--output", "."), "does not name a file"),
    ):
        code, out, err = run(*(files.get(argument, argument) for argument in arguments))
        assert (code, out) == (2, ""), arguments
        assert len(err.splitlines()) == 1
        assert said in err


def test_json_on_one_line_is_compared(run: Run, tmp_path: Path) -> None:
    paths = []
    for factor in (1.0, 1.1):
        measured = [replace(each, notes="µ" * 30_000) for each in rows(own=factor)]
        for shift in (0, 1):  # an odd and an even number of bytes before the text
            document = {"x" * (shift + 1): 1, "rows": objects(measured)}
            paths.append(tmp_path / f"{factor}-{shift}.json")
            paths[-1].write_text(json.dumps(document, ensure_ascii=False))
    for shift in (0, 1):
        assert run(*map(str, paths[shift::2]))[0] == 1


def test_files_with_the_same_measurements_are_refused(file: Write, run: Run) -> None:
    base, new = file("base.csv", rows()), file("new.csv", rows(own=0.9))
    copy = Path(base.replace("base", "copy"))
    copy.write_bytes(Path(base).read_bytes())
    part = base.replace("base", "part")
    write(read(copy)[2:], Path(part))
    for arguments in (
        (base, base),
        (base, str(copy)),
        (part, base),
        ("--base", base, str(copy), "--new", new),
    ):
        code, out, err = run(*arguments)
        assert (code, out, len(err.splitlines())) == (2, "", 1), arguments
        assert "holds the same measurements" in err


def test_a_side_of_two_sources_is_refused(file: Write, run: Run) -> None:
    def of_source(name: str, source: str) -> str:
        changed = (replace(row, source_hash=source) for row in rows())
        return file(
            name,
            [row if row.variant == "own" else replace(row, source_hash="1") for row in changed],
        )

    first, edited = of_source("b1.csv", "a1"), of_source("b2.csv", "b2")
    code, _, err = run("--base", first, edited, "--new", of_source("new.csv", "a1"))
    assert code == 2
    assert f"{edited}: the source of own is not that of {first}" in err
    assert run("--base", first, of_source("b3.csv", "a1"), "--new", edited)[0] == 0


def test_where_only_the_new_side_has_times_nothing_is_compared(file: Write, run: Run) -> None:
    base = file("base.csv", [failure(Status.SKIPPED, "too large", "own")])
    code, out, _ = run(base, file("new.csv", [row("own", 64)]))
    assert (code, out.splitlines()[0]) == (3, "nothing compared: 1 new of 1 point")


# ---- what is compared


def test_several_files_a_side_pool_their_rounds(file: Write, run: Run) -> None:
    def half(name: str, first: int, **factors: float) -> str:
        return file(
            name,
            [
                replace(row, round_medians_us=row.round_medians_us[first::2])
                for row in rows(**factors)
            ],
        )

    base = [half("b1.csv", 0), half("b2.csv", 1)]
    new = [half("n1.csv", 0, own=1.05), half("n2.csv", 1, own=1.05)]
    code, out, _ = run("--base", *base, "--new", *new, "--format", "json")
    (own, *_) = [point for point in json.loads(out)["points"] if point["variant"] == "own"]
    assert (code, own["base_rounds"], own["new_rounds"], own["verdict"]) == (1, 5, 5, "slower")
    spelled = ("--base", base[0], "--base", base[1], "--new", new[0], "--new", new[1])
    assert run(*spelled, "--format", "json") == (1, out, "")


def test_the_threshold_is_an_option(file: Write, run: Run) -> None:
    base, new = file("base.csv", rows()), file("new.csv", rows(own=1.05))
    assert [run(base, new, "--threshold", limit)[0] for limit in ("2%", "10%")] == [1, 0]


def test_without_a_blas_a_common_shift_is_a_regression_with_a_hint(file: Write, run: Run) -> None:
    own = [row for row in rows() if row.variant != "cublas"]
    slow = [row for row in rows(own=1.06, other=1.06) if row.variant != "cublas"]
    code, out, _ = run(file("base.csv", own), file("new.csv", slow))
    assert code == 1
    assert "Without a row of a BLAS" in " ".join(out.split())


# ---- formats


def test_text_in_a_file_has_no_colour_and_names_are_no_markup(
    file: Write, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    report = tmp_path / "report.txt"
    both = ("a.csv", rows()), ("b.csv", rows(own=1.05))
    named = [file(name, [replace(row, dtype="[red]") for row in side]) for name, side in both]
    run(*named, "-o", str(report))
    assert "[red]" in report.read_text()
    assert "\x1b" not in report.read_text()


def test_json_has_the_form_that_is_documented(file: Write, run: Run) -> None:
    page = Path(__file__).parents[3] / "docs" / "diff.md"
    new = rows(own=1.05)[1:]
    new.append(failure(Status.SKIPPED, "too large", "big"))
    out = run(file("base.csv", rows()), file("new.csv", new), "--format", "json")[1]
    report = json.loads(out)
    rows_of_tables = re.findall(r"^\|.*", page.read_text(encoding="utf-8"), re.MULTILINE)
    documented = set(re.findall(r"`(\w+)`", "".join(rows_of_tables)))
    names = {*report, *report["points"][0], *report["limits"], *report["untimed"][0]}
    assert names - set(KEY) <= documented
    counts = {"slower": 3, "missing": 1, "same": 5}
    assert report["counts"] == dict.fromkeys(DiffVerdict, 0) | counts
    assert report["untimed"][0]["reason"] == "too large"
    (slower, *_) = [point for point in report["points"] if point["verdict"] == "slower"]
    assert slower["ratio_low"] < slower["ratio"] < slower["ratio_high"]
    assert slower["ratio"] == pytest.approx(1.05)
    assert slower["judged_ratio"] == pytest.approx(slower["ratio"])
    assert 0 < slower["p"] <= slower["p_adjusted"] < 0.01


def test_each_point_is_a_test_case_of_junit(file: Write, run: Run) -> None:
    evil = 'a "quote" & <tag>'
    new = [row for row in rows(own=1.05)[1:] if row.label != "other at 64 float32"]
    new.append(failure(Status.ERROR, evil))
    paths = (file("base.csv", rows()), file("new.csv", new))
    suites = ET.fromstring(run(*paths, "--format", "junit")[1])  # noqa: S314 # our own
    (suite,) = suites
    counts = {"tests": "9", "failures": "3", "errors": "1", "skipped": "1"}
    assert {name: suite.get(name) for name in counts} == counts
    (error,) = suite.iter("error")
    assert error.get("message") == 'broken; base, ms 0.1002; error: a "quote" & <tag>'
    strict = ET.fromstring(run(*paths, "--format", "junit", "--strict")[1])  # noqa: S314 # our own output
    assert strict.get("failures") == "4"
    assert len(list(strict.iter("testcase"))) == 9


def many(count: int, factor: float) -> list[Row]:
    return [row("cublas", 8)] + [
        row("a_kernel_with_a_rather_long_name_" * 3 + str(n % 50), 16 + n // 50, factor)
        for n in range(count)
    ]


@pytest.mark.slow
def test_markdown_fits_a_comment_however_many_points_moved(file: Write, run: Run) -> None:
    out = run(
        file("base.csv", many(300, 1.0)), file("new.csv", many(300, 1.1)), "--format", "markdown"
    )
    assert out[0] == 1
    assert len(out[1]) < 65_536
    assert out[1].startswith("### gpubench diff: slower: 300 of 301 points")
    assert "and 250 more" in out[1]


def test_markdown_has_what_the_text_has_and_shows_names_as_they_are(file: Write, run: Run) -> None:
    new = [row for row in rows(own=0.9) if row.label != "other at 64 float32"]
    new.append(failure(Status.ERROR, "a | b <img> `c`\n@someone"))
    out = run(file("base.csv", rows()), file("new.csv", new), "--format", "markdown")[1]
    assert "error: a \\| b &lt;img> \\`c\\` @&#8203;someone\n" in out
    assert "faster (3): own at 64 -10.0 %; " in out


def test_advised_commands_are_not_wrapped_and_every_point_is_listed_if_asked(
    loud: Loud, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"loud_{number}" for number in range(12)]
    files = loud(*names)
    short, full = run(*files)[1], run(*files, "--full")[1]
    (advice,) = (line for line in short.splitlines() if line.startswith("to settle these points"))
    assert all(name in advice for name in names)
    assert "4 more" in short
    assert "more" not in full.partition("to settle these points")[0].replace("more than one", "")


def test_the_shortest_time_of_a_sweep_that_was_cut_is_that_of_all_its_rounds() -> None:
    whole = replace(row("loop", 64), timer="host", backend="cpu")

    def shortest(*sweeps: tuple[float | None, ...]) -> tuple[float, ...]:
        # A partial file has a row for each round.
        rows = {
            Path(f"{place}.csv"): [replace(whole, min_us=min_us) for min_us in of_sweep]
            for place, of_sweep in enumerate(sweeps)
        }
        return make_side(rows).pooled[whole.key].shortest_us

    assert shortest((97.0, 95.0, 96.0), (94.0,)) == (95.0, 94.0)
    assert shortest((97.0, None), (94.0,)) == (97.0, 94.0)
    assert shortest((None, None), (94.0,)) == ()


def test_an_advised_command_runs_nothing_that_a_file_names(
    loud: Loud, run: Run, tmp_path: Path
) -> None:
    pwned = tmp_path / "PWNED"
    files = loud(f"a;touch {pwned};$(touch {pwned})")
    for form in ("text", "markdown"):
        lines = run(*files, "--format", form)[1].splitlines()
        commands = [line[line.index("gpubench ") :] for line in lines if "gpubench ab " in line]
        assert commands
        for command in commands:
            subprocess.run(["/bin/sh", "-c", "gpubench() { :; }; " + command], check=False)
    assert not pwned.exists()
