"""Counters beside times: `sweep --counters` with a program that prints what ncu prints."""

import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commandline import Done, call
from fakes import FakeBackend, point, variant
from samples import RESULTS
from stub import nothing_measured

from gpubench.backends.cuda import ncu
from gpubench.commands.sweep import counters
from gpubench.engine import run
from gpubench.errors import LaunchError
from gpubench.hardware.architectures import example
from gpubench.model import Cache
from gpubench.results.counter_row import counters_path, read
from gpubench.results.row import read as read_results

METRICS = ("dram__bytes.sum", "sm__cycles_elapsed.max")
NVJET = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT"
NAIVE = "void naive<float, (int)16>(const T1 *, const T1 *, T1 *, int, int, int)"
REDUCE = "void cublasLt::splitKreduce_kernel<(int)32, float>(cublasLt::cublasSplitKParams<T2>)"

FAKE = """#!/bin/sh
echo "$*" >> {folder}/calls
calls=$(wc -l < {folder}/calls)
while [ "$1" != --log-file ]; do shift; done
cp {folder}/log$calls "$2"
exit $(cat {folder}/code$calls)
"""

RUNNING = """#!/bin/sh
while [ "$1" != all ]; do [ "$1" = --log-file ] && log=$2; shift; done
shift
"$@" && echo "==WARNING== No kernels were profiled." > $log
"""
"""A program that runs the process, and finds no kernel in it."""

HEAD = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC",
)  # fmt: skip
UNITS = {"dram__bytes.sum": "byte", "dram__bytes.max": "byte", "sm__cycles_elapsed.max": "cycle"}

Kernel = tuple[str, *tuple[str, ...]]
"""The name of a kernel, and the text of each of its counters."""


def log_of(*calls: Sequence[Kernel], metrics: Sequence[str] = METRICS, end: str = "") -> str:
    """Return what ncu writes for calls, each of which launches kernels behind a marker."""
    kernels = [each for call in calls for each in ((ncu.MARKER, *"01"), *call)]
    lines = [
        [*HEAD, *metrics],
        ["" for _ in HEAD] + [UNITS[metric] for metric in metrics],
        *(
            [str(number), "4711", "python3.12", "127.0.0.1", name, "1", "7", "(16, 16, 1)",
             "(4, 4, 1)", "0", "9.0", *values]
            for number, (name, *values) in enumerate(kernels)
        ),
    ]  # fmt: skip
    table = "".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in lines)
    passes = "".join(
        f'==PROF== Profiling "{name.partition("<")[0]}" - {number}: 0%....50%....100% - 3 passes\n'
        for number, (name, *_) in enumerate(kernels)
    )
    connected = "==PROF== Connected to process 4711 (/usr/bin/python3.12)\n"
    return f"{connected}{passes}==PROF== Disconnected from process 4711\n{table}{end}"


PROBED = log_of([])

Logs = Callable[..., None]


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    program = folder / "ncu"
    program.write_text(script)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(ncu, "find_ncu", lambda: str(program))


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Logs]:
    """A function that sets the logs of the next runs of ncu. Sweeps are on a fake GPU."""
    folder = tmp_path / "fake"
    folder.mkdir()
    monkeypatch.setattr("stub.CPU", example("sm_90"))
    with nothing_measured():
        install(monkeypatch, folder, FAKE.format(folder=folder))

        def put(*texts: str, code: int = 0) -> None:
            for number, text in enumerate(texts, start=1):
                (folder / f"log{number}").write_text(text)
                (folder / f"code{number}").write_text(str(code if number == len(texts) else 0))

        yield put


def swept(folder: Path, *words: str, metrics: str = ",".join(METRICS)) -> Done:
    usual = ("--device", "cuda", "--variants", "naive,cublas", "--tiles", "16", "--sizes", "64")
    usual += ("--rounds", "1", "-o", "a.csv", "--counters", metrics)
    return call(folder, "sweep", *usual, *words)


NAIVE_CALL = [(NAIVE, "12,345,678", "1,000")]
CUBLAS_CALL = [(NVJET, "98,304", "2,500.5"), (REDUCE, "n/a", "700")]


def test_a_sweep_shows_counters_of_each_kernel_of_a_call_beside_the_time_and_keeps_them(
    logs: Logs, tmp_path: Path
) -> None:
    logs(PROBED, log_of(NAIVE_CALL, CUBLAS_CALL))
    done = swept(tmp_path)
    assert done.code == 0, done.err
    table = done.out[done.out.index("Counters of one call: gemm 64 float32") :]
    lines = [line.split() for line in table.splitlines()]
    naive, cublas, reduce = lines[-7:-4]
    assert naive == ["naive", "16", "10.06", "µs", "12,345,678", "1,000"]
    assert cublas == ["cublas", "11.06", "µs", "98,304", "2,500.50"]
    assert reduce == ["kernel", "2", "700"]
    launched = f"cublas launches {NVJET}, then cublasLt::splitKreduce_kernel<32, float>"
    assert table.endswith(f"\n\n{launched}\n\na.csv\n")
    assert "naive launches" not in table
    assert done.out.endswith("\na.csv\n")
    rows = read(tmp_path / "a.counters.csv")
    assert [(row.variant, row.kernel, row.metric, row.unit, row.value) for row in rows] == [
        ("naive", 1, "dram__bytes.sum", "byte", 12_345_678),
        ("naive", 1, "sm__cycles_elapsed.max", "cycle", 1000),
        ("cublas", 1, "dram__bytes.sum", "byte", 98_304),
        ("cublas", 1, "sm__cycles_elapsed.max", "cycle", 2500.5),
        ("cublas", 2, "dram__bytes.sum", "byte", None),
        ("cublas", 2, "sm__cycles_elapsed.max", "cycle", 700),
    ]
    shown = call(tmp_path, "show", "a.csv").out
    assert shown.endswith(table[: table.index("\na.csv")])
    only = call(tmp_path, "show", "a.csv", "--only", "cublas").out
    assert NVJET in only
    assert "12,345,678" not in only


H200 = RESULTS / "counters"


def test_no_counter_and_no_name_of_a_library_kernel_is_cut_in_a_narrow_terminal(
    tmp_path: Path,
) -> None:
    out = call(tmp_path, "show", str(H200 / "bfloat16.csv"), COLUMNS="80").out
    rows = read(H200 / "bfloat16.counters.csv")
    assert {f"{row.value:,.0f}" for row in rows} <= set(out.split())
    assert all(len(line) <= 80 for line in out.splitlines())
    kernels = {f"{row.variant} launches {row.function}" for row in rows if not row.tile}
    assert kernels <= set(out.splitlines())


def test_counters_are_shown_of_the_points_that_show_lists(tmp_path: Path) -> None:
    files = [str(H200 / name) for name in ("bfloat16.csv", "float16.csv")]
    out = call(tmp_path, "show", files[0], "--top", "2").out
    _, *tables = out.split("Counters of one call: ")
    assert tables
    assert [len(re.findall(r"\d [µm]s ", table)) for table in tables] == [2 for _ in tables]
    out = call(tmp_path, "show", *files, "--top", "2").out
    assert [out.count(f"\n{path.removesuffix('csv')}counters.csv:\n") for path in files] == [1, 1]


def test_counters_of_points_without_tiles_have_no_column_of_tiles(tmp_path: Path) -> None:
    out = call(tmp_path, "show", str(H200 / "bfloat16.csv"), "--only", "cublas", COLUMNS="80").out
    headings = [line.split() for line in out.splitlines() if line.startswith("variant ")]
    assert headings[-1][:2] == ["variant", "time"]


def test_a_file_of_counters_is_shown_only_with_the_csv_of_the_sweep(tmp_path: Path) -> None:
    files = [str(H200 / name) for name in ("scaled.counters.csv", "scaled.csv")]
    assert call(tmp_path, "show", *files).out == call(tmp_path, "show", files[1]).out
    for command in ("show", "report", "diff"):
        done = call(tmp_path, command, *files[: 2 if command == "diff" else 1])
        assert done.code == 2
        assert "it is the counters of a sweep; name the CSV of the sweep beside it" in done.err


def test_counters_of_an_earlier_sweep_are_not_shown(logs: Logs, tmp_path: Path) -> None:
    logs(PROBED, log_of(NAIVE_CALL, CUBLAS_CALL))
    swept(tmp_path)
    path = tmp_path / "a.csv"
    path.write_text(path.read_text().replace("2026-01-01T", "2026-01-02T"))
    assert "Counters" not in call(tmp_path, "show", "a.csv").out


def test_each_cache_state_has_a_process_whose_caches_are_flushed_if_the_state_is_cold(
    logs: Logs, tmp_path: Path
) -> None:
    logs(PROBED, log_of(NAIVE_CALL), log_of(NAIVE_CALL))
    assert swept(tmp_path, "--cache", "both", "--variants", "naive").code == 0
    probe, *calls = (tmp_path / "fake" / "calls").read_text().splitlines()
    states = {row.cache for row in read_results(tmp_path / "a.csv")}
    assert states == {Cache.COLD, Cache.HOT}
    flushed = ["--cache-control all" in line for line in calls]
    assert sorted(flushed) == [False, True]
    assert "--cache-control none" in probe
    assert all(f"--metrics {','.join(METRICS)} --csv" in line for line in (probe, *calls))


def test_a_metric_without_suffix_shows_the_column_of_each_suffix(
    logs: Logs, tmp_path: Path
) -> None:
    metrics = ("dram__bytes.max", "dram__bytes.sum")
    log = log_of([(NAIVE, "1", "2")], metrics=metrics)
    logs(log_of([], metrics=metrics), log)
    assert swept(tmp_path, "--variants", "naive", metrics="dram__bytes").code == 0
    assert [row.metric for row in read(tmp_path / "a.counters.csv")] == [*metrics]


FORBIDDEN = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
    "Performance Counters on the target device 0. For instructions on enabling permissions and to "
    "get more information see https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"
)
UNKNOWN = r"==ERROR== Failed to find metric regex:^dram__bites(\.(sum|avg|min|max))?$"


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (FORBIDDEN, "this user may not read the GPU's counters (ERR_NVGPUCTRPERM): run as root"),
        (f"{UNKNOWN}\n", "'dram__bites.sum' is not a metric of this GPU; 'ncu --query-metrics'"),
        ("==ERROR== An error occurred\n", "Nsight Compute: An error occurred"),
        ("==WARNING== No kernels were profiled.\n", "ncu profiled no kernel"),
        (log_of([], metrics=METRICS[1:]), "'dram__bites.sum' is not a metric of this GPU;"),
        (PROBED.replace("bytes", "bites"), "ncu ended with exit code 3"),
    ],
)
def test_nothing_is_measured_if_ncu_cannot_read_the_counters(
    logs: Logs, tmp_path: Path, log: str, message: str
) -> None:
    logs(log, code=3 * ('bites.sum"' in log))
    done = swept(tmp_path, metrics="sm__cycles_elapsed.max,dram__bites.sum")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"gpubench: --counters: {message}")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize(
    ("words", "metrics", "message"),
    [
        ((), "dram__bytes.sum,group:memory", "'group:memory' is not a name of a metric, such as"),
        ((), " , ", "name metrics, such as dram__bytes.sum"),
        (("--device", "cpu"), "a", "only an NVIDIA GPU has these counters, not cpu"),
        (("--on", "local"), "a", "one device is profiled: leave out --on"),
        ((), "a", "ncu is not in PATH: install Nsight Compute, a part of the CUDA toolkit"),
    ],
)
def test_counters_that_nothing_can_read_are_refused_before_the_sweep_and_in_a_dry_run(
    tmp_path: Path, words: Sequence[str], metrics: str, message: str
) -> None:
    for dry in ((), ("--dry-run",)):
        with nothing_measured():
            done = swept(tmp_path, *words, *dry, metrics=metrics)
        assert (done.code, done.files) == (2, [])
        assert done.err.startswith(f"gpubench: --counters: {message}")


def test_counters_replace_a_file_only_by_force(logs: Logs, tmp_path: Path) -> None:
    (tmp_path / "a.counters.csv").write_text("mine")
    logs(PROBED, log_of(NAIVE_CALL, CUBLAS_CALL))
    done = swept(tmp_path)
    assert (done.code, done.err) == (
        2,
        "gpubench: --counters: a.counters.csv exists; --force overwrites it\n",
    )
    assert swept(tmp_path, "--force").code == 0
    assert read(tmp_path / "a.counters.csv")


@pytest.mark.parametrize("end", ["==ERROR== Failed to profile a kernel\n", ""])
def test_a_failure_of_ncu_after_the_sweep_keeps_the_times_and_the_first_counters(
    logs: Logs, tmp_path: Path, end: str
) -> None:
    logs(PROBED, log_of(NAIVE_CALL, end=end))
    done = swept(tmp_path)
    assert done.code == 2
    assert done.out.endswith("\na.csv\n")
    why = (
        "Nsight Compute: Failed to profile a kernel" if end else "the profiled process ended early"
    )
    assert done.err.endswith(f"gpubench: --counters: {why}; the times are in a.csv\n")
    assert {row.status for row in read_results(tmp_path / "a.csv")} == {"ok"}
    assert {row.variant for row in read(tmp_path / "a.counters.csv")} == {"naive"}


@pytest.mark.parametrize("counted", [[], [log_of(NAIVE_CALL)]])
def test_ctrl_c_while_counters_are_read_keeps_the_times_and_the_first_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Logs, counted: Sequence[str]
) -> None:
    logs()
    profiles = [ncu.read_log(text, METRICS) for text in (PROBED, *counted)]

    def interrupted(*_: object, **__: object) -> ncu.Profile:
        if not profiles:
            raise KeyboardInterrupt
        return profiles.pop(0)

    monkeypatch.setattr(counters, "profile", interrupted)
    done = swept(tmp_path, "--cache", "both", "--variants", "naive")
    assert done.code == 130
    assert len(read_results(tmp_path / "a.csv")) == 2
    path = tmp_path / "a.counters.csv"
    assert path.exists() == bool(counted)
    assert not counted or len(read(path)) == len(METRICS)


def test_an_interrupted_sweep_advises_to_resume_with_counters(
    logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs(PROBED)
    measure = run.measure

    def interrupted(*words: Any, **options: Any) -> run.Outcome:
        return replace(measure(*words, **options), interrupted=True)

    monkeypatch.setattr(run, "measure", interrupted)
    done = swept(tmp_path)
    assert done.code == 130
    assert done.err.endswith(
        "--resume a.csv continues the sweep\nno counters were read: add --counters to --resume\n"
    )


def test_counters_cannot_be_added_to_a_complete_sweep(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    with nothing_measured():
        done = call(tmp_path, "sweep", "--resume", "a.csv", "--counters", METRICS[0])
    assert done.code == 2
    assert done.err == (
        "gpubench: --resume: nothing to continue: a.csv is complete, so neither points nor "
        "counters can be added to it\n"
    )


def test_the_process_under_ncu_starts_and_reports_a_missing_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, tmp_path, RUNNING)
    done = swept(tmp_path)
    assert done.code == 2
    assert done.err.endswith("gpubench: --counters: ncu profiled no kernel\n")
    assert "[counters] " in done.err + capfd.readouterr().err
    assert done.files == ["ncu"]


def test_each_point_is_launched_behind_a_marker_and_a_point_that_fails_has_no_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = FakeBackend()
    marks: list[int] = []

    @contextmanager
    def marked_call() -> Iterator[None]:
        before = len(backend.events_of("run"))
        yield
        marks.append(len(backend.events_of("run")) - before)

    monkeypatch.setattr(counters, "open_backend", lambda _device: backend)
    monkeypatch.setattr(counters, "marked_call", marked_call)

    def fail(*_: object) -> None:
        raise LaunchError("too many\nthreads")

    points = [point(), point(variant(fail, name="failing")), point(cache=Cache.HOT)]
    counters.launch("cuda", points, seed=1)
    assert marks == [1, 0, 1]
    error = capsys.readouterr().err
    assert error == "failing at 64x48x32 float32: too many\n"
    marks.clear()
    counters.launch("cuda", [], seed=1)
    assert marks == [0]


def test_a_log_that_ends_anywhere_gives_only_counters_of_the_complete_log() -> None:
    log = log_of(NAIVE_CALL, CUBLAS_CALL)
    complete = ncu.read_log(log, METRICS).calls
    counts = set()
    for end in range(log.index('"ID"'), len(log)):
        calls = ncu.read_log(log[:end], METRICS, "ncu took longer than 1 s").calls
        counts.add(len(calls))
        for kernels, whole in zip(calls, complete, strict=False):
            assert kernels == whole[: len(kernels)]
    assert counts == {0, 1, 2}


def test_counters_lie_beside_a_csv_that_may_be_compressed() -> None:
    for name in ("a.csv", "a.csv.gz"):
        assert counters_path(Path("results", name)) == Path("results/a.counters.csv")
