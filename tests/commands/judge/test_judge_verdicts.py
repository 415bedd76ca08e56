"""`judge`: its verdict for each kernel and shape, its exit code, and its JSON."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from commandline import call
from newcomer import RESEARCH
from samples import sample
from stub import nothing_measured

from gpubench.backends.functions import writing
from gpubench.commands.judge import _with_baselines
from gpubench.commands.judge import verdicts as of_verdicts
from gpubench.commands.judge.from_file import described
from gpubench.commands.judge.reproducible import Reproducibility, as_members
from gpubench.commands.judge.verdicts import Judged, exit_code, judge_rows
from gpubench.commands.judge.view import as_tables, threads
from gpubench.model import OPERATIONS, CallVariant
from gpubench.plan.registry import library_of, of_op
from gpubench.plan.sweep import Sweep
from gpubench.results.row import Row

sys.path.insert(0, str(RESEARCH))
import make_schemas

FUNCTION = """
from gpubench.model import CallVariant

VARIANT = CallVariant(
    idea="a product", runs_on="cpu", build=print, dtypes=("float32",), baseline="cpu_blas"
)
"""

BASE_US = (100.0, 101.0, 100.5, 99.5, 100.0)


def timed(variant: str, factor: float, n: int = 64, **facts: object) -> Row:
    """Return a row whose rounds take `factor` times as long as the baseline's rounds."""
    medians = [factor * us for us in BASE_US]
    return sample(
        variant, n=n, median_us=medians[2], round_medians_us=tuple(medians), rounds=5, **facts
    )


def judged(*rows: Row, claim: float = 1.0) -> list[Judged]:
    return judge_rows([timed("blas", 1.0), *rows], {"mine": ("blas",)}, claim=claim)


def verdicts(*rows: Row, claim: float = 1.0) -> tuple[list[str], int]:
    results = judged(*rows, claim=claim)
    return [str(each.verdict) for each in results], exit_code(results)


@pytest.mark.parametrize(
    ("factor", "claim", "verdict", "code"),
    [
        (0.5, 1.0, "faster", 0),
        (1.0, 1.0, "same", 0),
        (1.2, 1.0, "slower", 1),
        (0.5, 2.5, "slower", 1),
    ],
)
def test_the_verdict_is_on_the_speed_relative_to_the_claim(
    factor: float, claim: float, verdict: str, code: int
) -> None:
    assert verdicts(timed("mine", factor), claim=claim) == ([verdict], code)


def test_an_interval_around_the_claim_decides_nothing() -> None:
    scattered = replace(timed("mine", 1.0), round_medians_us=(85, 121, 85, 119, 85))
    assert verdicts(scattered) == (["not decided"], 3)
    assert verdicts(timed("mine", 0.5, n=96)) == (["not decided"], 3)  # no baseline at 96
    # This baseline might be faster than "blas".
    lost = timed("tuned", 1.0, status="error", reason="crashed")
    rows = timed("blas", 1.0), lost, timed("mine", 0.5)
    (result,) = judge_rows(rows, {"mine": ("blas", "tuned")})
    assert result.reason == "the baseline has no time: tuned: crashed"


@pytest.mark.parametrize(
    ("factor", "clock_ratio", "timer", "cache", "verdict"),
    [
        (0.8, 1.4, "host", "hot", "not decided"),
        (0.5, 1.4, "host", "hot", "faster"),  # faster even with 1.4 times the time
        (0.8, 1.4, "events", "hot", "not decided"),
        (3.0, 0.3, "host", "hot", "not decided"),  # the first time includes waiting for a core
        (3.0, 0.5, "host", "hot", "slower"),
    ],
)
def test_a_speed_that_another_clock_contradicts_is_not_decided(
    factor: float, clock_ratio: float, timer: str, cache: str, verdict: str
) -> None:
    rows = [timed(*x, timer=timer, cache=cache) for x in (("blas", 1.0), ("mine", factor))]
    row = replace(rows[1], clock_ratio=clock_ratio)
    (result,) = judge_rows([rows[0], row], {"mine": ("blas",)})
    assert result.verdict == verdict
    reason = f"takes {clock_ratio:.2f} times as long"
    assert (reason in result.reason) == (verdict == "not decided")


@pytest.mark.parametrize(
    ("factor", "ratios", "verdict"),
    [
        (1.0, (1.18, 1.2), "same"),  # by another process's clock, short launches take longer
        (1.0, (None, 1.2), "not decided"),
        (0.55, (1.18, 2.3), "not decided"),
        (0.5, (1.2, 1.2), "faster"),
        (0.8, (0.5, 1.3), "not decided"),
    ],
)
def test_another_clock_is_compared_with_the_same_clock_of_the_baseline(
    factor: float, ratios: tuple[float | None, float], verdict: str
) -> None:
    named = ("blas", 1.0), ("mine", factor)
    rows = [replace(timed(*x), clock_ratio=r) for x, r in zip(named, ratios, strict=True)]
    (result,) = judge_rows(rows, {"mine": ("blas",)})
    assert result.verdict == verdict


@pytest.mark.parametrize(("timer", "clock_ratio"), [("outside", 1.3), ("events", None)])
def test_the_clock_ratio_of_a_baseline_alone_changes_no_verdict(
    timer: str, clock_ratio: float | None
) -> None:
    """On a busy machine, the time by the other clock may include waiting for a core."""
    blas = timed("blas", 100.0, timer=timer, clock_ratio=1.3)
    mine = timed("mine", 100.0, timer=timer, clock_ratio=clock_ratio)
    (result,) = judge_rows([blas, mine], {"mine": ("blas",)})
    assert (result.verdict, result.reason) == ("same", "")


def test_a_speed_is_stated_by_the_clock_with_the_longer_time() -> None:
    rows = timed("blas", 1.0), replace(timed("mine", 0.5), clock_ratio=1.4)
    (result,) = judge_rows(rows, {"mine": ("blas",)})
    assert result.ratio
    assert (result.verdict, round(result.ratio.ratio, 2)) == ("faster", 1.43)


def test_a_time_that_no_other_process_confirms_is_not_decided() -> None:
    rows = timed("blas", 1.0), replace(timed("mine", 0.5), clock="own")
    (result,) = judge_rows(rows, {"mine": ("blas",)})
    assert result.verdict == "not decided"
    assert result.reason == "no other process confirms the time: see the notes"


@pytest.mark.parametrize(
    ("factor_on_two", "verdict"), [(5.0, "not decided"), (6.0, "not decided"), (2.0, "slower")]
)
def test_a_function_is_slower_only_if_the_baseline_is_faster_on_as_many_threads(
    factor_on_two: float, verdict: str
) -> None:
    """On a busy host, NumPy's product took five times as long on two threads as on one thread."""
    rows = (
        timed("blas", 1.0, cpu_threads=1),
        timed("blas_parallel", factor_on_two, cpu_threads=2),
        timed("mine", 5.0, cpu_threads=2),
    )
    (result,) = judge_rows(rows, {"mine": ("blas", "blas_parallel")})
    assert result.verdict == verdict
    assert ("blas_parallel is not faster on 2 threads" in result.reason) == (factor_on_two > 2)
    (alone,) = judge_rows(rows, {"mine": ("blas",)})
    assert (alone.verdict, "no baseline ran on 2 threads" in alone.reason) == ("not decided", True)


@pytest.mark.parametrize(
    ("threads", "launches", "factor", "verdict"),
    [
        (2, 4, 0.5, "not decided"),
        (2, 4, 1.0, "not decided"),
        (2, 4, 2.0, "slower"),
        (2, 1, 0.5, "faster"),
        (1, 4, 0.5, "faster"),
    ],
)
def test_launches_that_threads_may_share_are_neither_faster_nor_the_same(
    threads: int, launches: int, factor: float, verdict: str
) -> None:
    """A function may work at several launches of a request at the same time."""
    facts = {"timer": "outside", "cpu_threads": threads, "overhead_us": 0.0}
    rows = (
        timed("blas", 1.0, **facts),
        timed("mine", factor, launches_per_sample=launches, **facts),
    )
    (result,) = judge_rows(rows, {"mine": ("blas",)})
    assert result.verdict == verdict
    text = "2 threads may work at several launches of 50.2 µs at the same time"
    assert (text in result.reason) == ((verdict, factor) == ("not decided", 0.5))


def test_a_wrong_tile_or_a_lost_result_makes_a_kernel_wrong() -> None:
    right = timed("mine", 0.5)
    wrong = timed("mine", 0.4, tile="8", status="wrong", reason="cut to half")
    lost = timed("mine", 0.4, tile="8", status="error", reason="crashed")
    assert verdicts(right, wrong) == (["wrong"], 1)
    assert judged(right, lost)[0].reason == "no result: crashed"
    skipped = timed("mine", 1.0, status="skipped", reason="has no 64")
    assert verdicts(skipped) == (["refused"], 3)
    assert verdicts() == ([], 3)


def test_more_verdicts_have_wider_intervals_so_that_all_hold_together() -> None:
    mine = [
        replace(timed("mine", 0.99, n=n), round_medians_us=(99, 98, 100, 99.5, 98.5))
        for n in (64, 96, 128)
    ]
    single = judged(mine[0])[0].ratio
    blas = [timed("blas", 1.0, n=n) for n in (96, 128)]
    many = judged(*mine, *blas)[0].ratio
    assert single
    assert many
    assert many.low < single.low < single.high < many.high


def test_functions_are_judged_by_exit_code_and_json_that_fits_its_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_verdicts, "SHORTEST_US", 1.0)  # the stand-in reports 10 µs
    (tmp_path / "own").mkdir()
    for name in ("honest", "lazy"):
        (tmp_path / "own" / f"{name}.py").write_text(FUNCTION)
    flags = ("--kernels", "own", "--device", "cpu", "--sizes", "24", "--rounds", "3", "--json")
    with nothing_measured():  # the results of `lazy` are wrong
        done = call(tmp_path, "judge", *flags, "--output", "a.csv")
        (tmp_path / "own" / "weak.py").write_text(FUNCTION.replace("cpu_blas", "cpu_naive"))
        refused = call(tmp_path, "judge", "weak", *flags)
    assert refused.code == 2
    assert "names cpu_naive, which is no library: name the baseline" in refused.err
    document = json.loads(done.out)
    assert (done.code, document["exit_code"]) == (1, 1)
    by_variant = {each["variant"]: each for each in document["verdicts"]}
    assert (by_variant["lazy"]["verdict"], by_variant["lazy"]["reason"]) == (
        "wrong",
        "half is missing",
    )
    assert (by_variant["honest"]["verdict"], by_variant["honest"]["reason"]) == ("same", "")
    assert (
        by_variant["honest"]["ratio_low"]
        <= by_variant["honest"]["ratio"]
        <= by_variant["honest"]["ratio_high"]
    )
    schema = make_schemas.schemas()["judge-2.json"]
    check = jsonschema.Draft202012Validator(schema)
    check.validate(document)
    assert not check.is_valid(document | {"format": 0})
    assert not check.is_valid(document | {"verdicts": [by_variant["lazy"] | {"verdict": "right"}]})


KERNEL = """
__global__ void product(int M, int N, int K, const float *A, const float *B, float *C) {
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  for (int k = 0; k < K; ++k) C[i * N + threadIdx.x] += A[i * K + k] * B[k * N + threadIdx.x];
}
"""
LAUNCHER = """void run(int M, int N, int K, const float *A, const float *B, float *C) {
  product<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(M, N, K, A, B, C);
}
"""
TEXTS = {
    "naive.cu": KERNEL + LAUNCHER,
    "kernel.cu": KERNEL,
    "rows.cu": "",
    "libmine.so": "\x7fELF",
    "text.so": "",
    "returns.py": "def product(a, b):\n    return a @ b\n",
    "rows.py": "def product(a, b, c):\n    c[:] = a @ b\n",
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "name", "dtype"),
    [
        ("naive.cu:run", "my_naive", "float32"),  # gpubench already has a kernel `naive`
        ("libmine.so:run(double* A, double* B, double* C, int N)", "mine", "float64"),
        ("libmine.so:run(double* A=A, double* B, double* C, int area=M*N)", "mine", "float64"),
        ("rows.py:product", "rows", "float32"),
        ("returns.py", "returns", "float32"),
    ],
)
def test_a_file_is_judged_without_a_description(
    files: Path, text: str, name: str, dtype: str
) -> None:
    backend = "cpu" if ".py" in text else "cuda"
    named, sweep = described(text, Sweep(dtypes=("float32",)), backend)
    variant = of_op("gemm", sweep.kernels)[name]
    assert (named, variant.backend, variant.dtypes) == (name, backend, (dtype,))
    assert files in {path.resolve().parent for path in variant.sources}
    if isinstance(variant, CallVariant) and backend == "cpu":
        c = np.zeros((2, 2))
        function = writing(variant.build(None, dtype), variant)
        function(np.ones((2, 2)), np.ones((2, 2)), c)
        assert c.tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none.py:product", "none.py: no such file"),
        ("rows.cu", "rows.cu defines no kernel"),
        ("kernel.cu", "how its kernel is launched; describe the kernel with 'gpubench new-kernel"),
        ("libmine.so:run", "libmine.so: declare its function, such as 'libmine.so:run"),
        ("text.so:run(double*A)", "text.so: this file is not a shared library"),
        ("rows.py:products", "KERNEL: unknown function 'products'; "),
        ("rows.py:product mm", "a file is judged alone"),
        ("libmine.so:run(3)", "libmine.so: '3' is not a parameter"),
        ("libmine.so:run(double*A=null)", "libmine.so: declare its function"),
    ],
)
def test_a_file_that_says_too_little_is_refused(files: Path, text: str, message: str) -> None:
    done = call(files, "judge", *text.split(), "--device", "cpu")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err


def test_a_library_is_described_by_a_signature_that_the_user_states(tmp_path: Path) -> None:
    source = 'extern "C" void run() {} void other() {}'
    command = ["g++", "-x", "c++", "-shared", "-fPIC", "-o", str(tmp_path / "libmine.so"), "-"]
    subprocess.run(command, input=source, text=True, check=True)
    done = call(tmp_path, "new-kernel", "mine", "--from", "libmine.so")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert (
        "has no signatures and defines run; state a signature: gpubench judge 'libmine" in done.err
    )


def test_the_table_names_verdict_ratio_and_reason() -> None:
    results = judged(timed("mine", 0.5), timed("mine", 1.0, n=96))
    assert "not decided: nothing was measured" in str(as_tables([], 1.0)[-1])
    shown = "\n".join(str(part) for part in as_tables(results, 1.0)[1:])
    assert "not decided: mine 16 at 96 (float32, cold cache): the baseline has no time" in shown
    assert "not decided (claim: the baseline): 2 verdicts, 1 faster, 1 not decided" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name a kernel, or the directory of your kernels as --kernels"),
        (("cpu_tile", "--baseline", ","), "--baseline: cpu_tile needs another kernel"),
        (("cpu_tile", "--rounds", "2"), "--rounds: a verdict needs at least 3 rounds"),
        (("cpu_blas", "--baseline", "cpu_blas"), "--baseline: cpu_blas needs another kernel"),
        (("cpu_tile", "--dtypes", "float16"), "nothing to measure: cpu_tile has no float16"),
    ],
)
def test_an_invalid_option_of_judge_is_refused_in_one_line(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    refused = call(tmp_path, "judge", *words, "--device", "cpu")
    assert (refused.code, refused.files) == (2, [])
    assert refused.err.startswith(f"gpubench: {message}")


def outside(variant: str, factor: float, **facts: object) -> Row:
    """Return a row that was timed from outside its process, with an overhead of 2 µs per launch."""
    facts = {"overhead_us": 8.0, "launches_per_sample": 4, "timer": "outside"} | facts
    return timed(variant, factor, **facts)


def test_a_time_that_is_too_short_to_be_timed_from_outside_decides_nothing() -> None:
    (result,) = judge_rows([outside("blas", 1.0), outside("mine", 0.5)], {"mine": ("blas",)})
    assert result.verdict == "faster"
    texts = "above 5 %", "µs is too short"
    for facts, factor, text in (({"overhead_us": 30.0}, 0.5, texts[0]), ({}, 0.3, texts[1])):
        rows = [outside("blas", 1.0), outside("mine", factor, **facts)]
        (result,) = judge_rows(rows, {"mine": ("blas",)})
        assert result.verdict == "not decided"
        assert text in result.reason


@pytest.mark.parametrize(("subtracted_us", "verdict"), [(200.0, "slower"), (2000.0, "not decided")])
def test_a_function_is_slower_only_if_it_is_slower_without_what_was_subtracted(
    subtracted_us: float, verdict: str
) -> None:
    """On a busy host, 6.4 ms were subtracted instead of 0.3 ms, from a library on two threads."""
    rows = outside("blas", 1.0, overhead_us=subtracted_us), outside("mine", 2.0)
    (result,) = judge_rows(rows, {"mine": ("blas",)})
    assert result.verdict == verdict
    assert ("hand over the operands is subtracted" in result.reason) == (verdict != "slower")


def test_the_fastest_of_several_tiles_needs_more_proof_than_a_single_tile() -> None:
    scattered = (95, 96, 97, 98, 99)
    tiles = [
        replace(timed("mine", 0.97, tile=str(i)), round_medians_us=scattered) for i in range(20)
    ]
    alone, among = judged(tiles[0]), judged(*tiles)
    assert alone[0].low
    assert among[0].low
    assert among[0].low < alone[0].low < alone[0].ratio.low  # type: ignore[union-attr] # it has one


@pytest.mark.parametrize(("counts", "text"), [((2, 1), "2 and 1"), ((None, None), "")])
def test_the_table_states_the_threads_of_both_sides(
    counts: tuple[int | None, int | None], text: str
) -> None:
    own, base = counts
    rows = timed("blas", 1.0, cpu_threads=base), timed("mine", 0.5, cpu_threads=own)
    (result,) = judge_rows(rows, {"mine": ("blas",)})
    assert threads(result) == text


def test_bits_are_listed_also_if_no_launch_at_the_size_of_the_row_succeeded() -> None:
    bits = Reproducibility(row=timed("mine", 1.0), first_rows={1: {"a"}}, refused={64: "failed"})
    (members,) = as_members([bits])
    assert members["rows"] == {"1": "failed", "64": "failed"}


@pytest.mark.parametrize("op", [*OPERATIONS])
def test_a_function_is_compared_with_the_library_on_one_and_on_all_cpus(
    op: str, tmp_path: Path
) -> None:
    """A description may name the slower library, or a function may use more threads than it."""
    if library_of(op, "cpu") != "cpu_blas":
        pytest.skip("a user's operation of another test")
    (tmp_path / "mine.py").write_text(FUNCTION.replace('"cpu_blas"', '"cpu_blas_parallel"'))
    sweep, baselines, _ = _with_baselines(Sweep(op=op, kernels=tmp_path), "cpu", ["mine"], None)
    assert set(baselines["mine"]) == {"cpu_blas", "cpu_blas_parallel"}
    assert {*sweep.variants} == {"mine", "cpu_blas", "cpu_blas_parallel"}
    assert "the fastest number of threads" in of_op(op)["cpu_blas_parallel"].idea
