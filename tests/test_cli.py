"""The commands as a user runs them, without a GPU."""

from __future__ import annotations

import json
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import (
    COMMANDS,
    LONG,
    OWN,
    QUICK,
    QUICKER,
    SWEEP,
    TIMEOUT_S,
    call,
    files_in,
    run,
    start,
    wait_for_lines,
)

import gpubench
from gpubench.cli import summary
from gpubench.errors import LONGEST_MESSAGE
from gpubench.plan.registry import variants
from gpubench.results.row import read

HEAVY = {"numpy", "pandas", "cupy", "numba", "matplotlib", "scipy", "rich", "distributed", "torch"}

ANSI = "\x1b["


# ---- help


LOADED = """
import sys
import gpubench
of_package = set(sys.modules)
from gpubench.cli import main
for command in {commands}:
    sys.argv[1:] = [*filter(None, [command]), "--help"]
    try:
        main()
    except SystemExit as error:
        assert not error.code
    if not command:
        of_list = set(sys.modules)
for modules in (of_package, of_list, set(sys.modules)):
    print(*modules, file=sys.stderr)
"""


@pytest.mark.usefixtures("cold")
def test_a_command_by_python_m_imports_nothing_from_the_current_directory(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for name in ("platformdirs", "signal", "typer"):
        (tmp_path / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')")
    done = run(tmp_path, "--version")
    assert (done.code, done.files) == (0, ["platformdirs.py", "signal.py", "typer.py"])


@pytest.mark.usefixtures("cold")
def test_help_loads_nothing_heavy_and_the_list_of_commands_no_command_and_no_options() -> None:
    code = LOADED.format(commands=["", *COMMANDS])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert done.stdout.count("Usage: ") == 1 + len(COMMANDS)
    loaded = [set(line.split()) for line in done.stderr.splitlines()]
    assert [modules & HEAVY for modules in loaded] == [set()] * 3
    of_package, of_list = (
        {name for name in modules if name.startswith("gpubench.")} for modules in loaded[:2]
    )
    assert of_package == set()
    assert of_list == {
        f"gpubench.{name}"
        for name in ("cli", "errors", "text", "files", "process", "process.descendants")
    }
    assert not {"msgspec", "pydantic", "secrets"} & loaded[1]


def test_the_list_of_commands_shows_the_first_line_of_each_help() -> None:
    for name, command in COMMANDS.items():
        assert command.help, (
            f"the function of {name} needs a docstring: --help lists its first line"
        )
        assert summary(name) == command.help.partition("\n")[0]


@pytest.mark.parametrize("name", ["sweep", "compare-cublas"])
def test_options_of_the_command_line_are_those_of_toml(name: str) -> None:
    from gpubench.options import OPTIONS

    flags = {parameter.name for parameter in COMMANDS[name].params}
    own = {
        "config",
        "resume",
        "force",
        "on",
        "dry_run",
        "to_find",
        "save",
        "counters",
        "ladder",
        "rivals",
        "help",
    }
    assert flags - own == set(OPTIONS), "name an option that TOML lacks in `own` of this test"


# ---- refusals

DRY = (*SWEEP, "--dry-run")
"""A dry run. It refuses the same input as a sweep, and starts no process to open the device."""

REFUSED: dict[str, tuple[tuple[str | bytes, ...], str]] = {
    "no size": ((*SWEEP, "--sizes="), "--sizes"),
    "generate without a shape": (("generate", "a.bin"), "--sizes"),
    "generate into a folder": (
        ("generate", "..", "--sizes", "4"),
        "FILE: .. is a directory; name a file",
    ),
    "generate of two shapes": (("generate", "a.bin", "--sizes", "4,5"), "one shape"),
    "generate of too much": (("generate", "a.bin", "--sizes", "999999x999999"), "are free"),
    "a seed that is not UTF-8": (("generate", "a.bin", "--sizes", "4", b"--seed=\xff"), "--seed"),
    "run without an output": (("run", "nowhere.bin"), "--output"),
    "run of two tiles": (("run", "a.bin", "-o", "c.bin", "--tiles", "8,9"), "one tile"),
    "run of a vector too short": (
        ("run", "{folder}/wide.bin", "-o", "c.bin", "--op", "gemv_t"),
        "v has 2 elements, but gemv_t of 1x2 needs 1",
    ),
    "bytes that are no text": ((*SWEEP, "--sizes", b"\xff\xfe"), "--sizes"),
    "variant of a gpu": ((*DRY, "--variants", "shared_tile"), "--device cuda"),
    "blank in a list": ((*SWEEP, "--dtypes", "float32,", "int32"), "write float32,int32"),
    "unknown order": (("show", "{folder}/good.csv", "--sort", "speed"), "'speed' is not one of"),
    "gpu that is not there": (("sweep", "--device", "cuda:1"), "CUDA"),
    "cupti on a cpu": ((*SWEEP, "--timer", "cupti"), "--timer cupti"),
    "a dry run of cupti on a cpu": ((*DRY, "--timer", "cupti"), "--timer cupti is only for cuda"),
    "a dry race of cupti on a cpu": (
        ("tune", "cpu_tile", "--device", "cpu", "--timer", "cupti", "--dry-run"),
        "--timer cupti is only for cuda",
    ),
    "output in a file": ((*SWEEP, "--output", "/dev/null/x.csv"), "--output"),
    "missing config": ((*SWEEP, "--config", "nowhere.toml"), "cannot read nowhere.toml"),
    "a config of no end": ((*SWEEP, "--config", "/dev/zero"), "has more than"),
    "a device of numbered nonsense": (("sweep", "--device", "x:y"), "is not a device"),
    "unknown option": ((*SWEEP, "--tile", "8"), "No such option"),
    "option without value": (("sweep", "--sizes"), "requires an argument"),
    "stray argument of any length": (("sweep", "9" * 50_000), "unexpected extra argument"),
    "unknown command": (("swep",), "Did you mean 'sweep'"),
    "misspelt option": ((*SWEEP, "--varaints", "8"), "--variants"),
    "an empty size of a kernel": (("explain", "naive", "--sizes", ""), "--sizes: an item of"),
    "an empty tile": (("explain", "naive", "--tiles", ""), "--tiles: an item of '' is empty"),
    "an empty size to build": (("build", "naive", "--sizes", ""), "--sizes: an item of '' is"),
    "an empty operation to list": (("variants", "--op", ""), "--op: unknown operation ''"),
    "an empty device to describe": (("deviceinfo", "--device", ""), "--device: '' is not a device"),
    "a scheduler file with a long name": (("sweep", "--on", "x" * 5000), "--on: 'x"),
    "resuming nothing": (("sweep", "--resume", ""), "--resume: '.' does not name a file"),
    "reproducing from nothing": (("reproduce", "--resume", ""), "nothing to continue"),
    "a report that is no page": (("report", "a.csv", "-o", "a.pdf"), "does not end in .html"),
    "a build file that is no CSV": (
        ("build", "naive", "-o", "a.json"),
        "not end in .csv or .csv.gz",
    ),
    "units of a fleet as JSON": (("fleet", "--dry-run", "-o", "a.json"), "does not end in .csv"),
    "winners in a CSV": (
        ("tune", "cpu_tile", "--device", "cpu", "--winners", "a.csv", "--dry-run"),
        "--winners: 'a.csv' does not end in .toml",
    ),
    "a table in TOML": (
        ("tune", "--table", "a.toml", "--sizes", "8", "--device", "cpu", "--dry-run"),
        "--table: 'a.toml' does not end in .csv",
    ),
    "sizes beside a list": ((*DRY, "--sizes", "64,a.csv"), "has both sizes and files"),
    "a list beside sizes": ((*DRY, "--sizes", "a.csv, 64"), "has both sizes and files"),
    "two lists, of which one is missing": (
        (*DRY, "--sizes", "{folder}/list.csv, b.csv"),
        "cannot read b.csv",
    ),
    "a dry run into a file that exists": (
        (*DRY, "--output", "{folder}/list.csv"),
        "list.csv exists; --force overwrites it",
    ),
    "a dry run whose samples are a file that exists": (
        (*DRY, "--samples", "{folder}/list.csv"),
        "list.csv exists; --force",
    ),
    "a dry run whose samples are the CSV": (
        (*DRY, "-o", "a.csv", "--samples", "a.csv"),
        "--samples: a.csv is a.csv, which the sweep writes itself",
    ),
    "a dry run of a race whose confirmation is a file that exists": (
        ("tune", "cpu_tile", "--device", "cpu", "-o", "{folder}/race.csv", "--dry-run"),
        "race.confirmed.csv exists; --force overwrites it",
    ),
    "a seed above the largest": ((*DRY, "--seed", "9" * 19), "from 0 to 9223372036854775807"),
    "problems that are not there": (
        ("judge", "problems/", "-o", "verdicts"),
        "KERNEL: problems/: no such file or folder",
    ),
    "a copy of a Python function": (
        ("new-kernel", "mine", "--like", "cpu_tile"),
        "--like: 'cpu_tile' is a function that runs on cpu",
    ),
    "a report of no end": (("report", "/dev/zero", "-o", "a.html"), "more than 200,000 rows"),
    "a broken kernel": (
        (*SWEEP, "--kernels", "{folder}/broken_kernels"),
        "mine.py:2: SyntaxError",
    ),
    "a kernel without a name": (("judge", ""), "unknown variant ''"),
    "a baseline without a name": (("judge", "cpu_tile", "--baseline", ","), "--baseline"),
    "an export without a name": (("export", ""), "unknown variant ''"),
    "a folder in place of a kernel": (("export", "."), ". is a folder: write --kernels ."),
    "a folder in place of a file": (("show", "."), "cannot read .: Is a directory"),
    "how often to measure, without a dry run": ((*SWEEP, "--to-find", "3%"), "--dry-run"),
    "a slow-down without its sign": ((*DRY, "--to-find", "3"), "--to-find: '3' is not a perc"),
    "dry run of a resumed sweep": ((*DRY, "--resume", "a.csv"), "--dry-run"),
    "comparing on a cpu": (
        ("compare-cublas", "--device", "cpu"),
        "compare-cublas needs an NVIDIA GPU",
    ),
    "deviceinfo of a gpu": (("deviceinfo", "--device", "cuda"), "CUDA"),
    "selfcheck without gpu": (("selfcheck",), "GPU"),
    "selfcheck on the cpu": (("selfcheck", "--device", "cpu"), "--device: selfcheck"),
}


@pytest.fixture
def configs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files that no command can use."""
    configs = tmp_path_factory.mktemp("configs")
    (configs / "broken_kernels").mkdir()
    (configs / "broken_kernels" / "mine.py").write_text("\nVARIANT = (\n")
    (configs / "race.confirmed.csv").touch()
    (configs / "list.csv").write_text("name,m,n,k\na,8,8,8\n")
    (configs / "wide.bin").write_bytes(struct.pack("<II8x4f", 2, 1, 1, 2, 3, 4))
    return configs


@pytest.mark.slow
def test_bad_input_is_one_line_and_exit_2_and_leaves_no_file(configs: Path, tmp_path: Path) -> None:
    for case, (arguments, hint) in REFUSED.items():
        done = call(
            tmp_path,
            *(
                word.replace("{folder}", str(configs)) if isinstance(word, str) else word
                for word in arguments
            ),
        )
        assert len(done.err.splitlines()) == 1, (case, done.err)
        assert done.err.startswith("gpubench: "), case
        assert len(done.err) < LONGEST_MESSAGE + 20, case
        assert hint in done.err, (case, done.err)
        assert (done.code, done.out, done.files) == (2, "", []), case


# ---- operand files


@pytest.mark.slow
def test_generated_operands_are_computed_with_and_nothing_is_overwritten(tmp_path: Path) -> None:
    import numpy as np

    generate = ("generate", "a.bin", "--sizes", "5x3", "--seed", "7")
    assert call(tmp_path, *generate).code == 0
    compute = ("run", "a.bin", "--op", "atax", "--output", "c.bin", "--device", "cpu")
    done = call(tmp_path, *compute)
    assert (done.code, done.err, done.files) == (0, "", ["a.bin", "c.bin"])
    assert done.out.startswith("c.bin: atax by cpu_blas_parallel at 5x3 float32 on ")
    values = np.fromfile(tmp_path / "a.bin", "<f4", offset=16)
    a, v = values[:15].reshape(5, 3), values[15:]
    assert np.fromfile(tmp_path / "c.bin", "<f4") == pytest.approx(a.T @ (a @ v), rel=1e-5)
    for again in (generate, compute):
        refused = call(tmp_path, *again)
        assert (refused.code, refused.out) == (2, "")
        assert "exists; --force overwrites it" in refused.err
    assert call(tmp_path, *compute, "--variants", "cpu_fused", "--force").code == 0


# ---- sweeping


@pytest.mark.slow
def test_a_sweep_shows_its_tables_and_last_the_csv_under_results_which_is_read_back(
    tmp_path: Path,
) -> None:
    done = run(
        tmp_path, *SWEEP, "--sizes", "8,9x7x5", "--variants", "cpu_tile,cpu_blas", "--tiles", "8",
        "--dtypes", "float32,int32", *QUICKER,
    )  # fmt: skip
    assert done.code == 0
    (file,) = done.files
    assert re.fullmatch(r"results/\d{8}T\d{6}\.\d{6}Z-.*-gemm\.csv", file)
    assert done.out.splitlines()[-1] == file
    assert "gemm 8 float32 on" in done.out
    assert re.search(r"% of +% of", done.out)  # percentages of the peak and of the BLAS
    assert "6 points" in done.err
    assert "left out: cpu_blas has no int32\n" in done.err
    assert not re.search(r"\x1b\[|\r", done.out + done.err)
    rows = [(each.variant, each.size, each.dtype, each.status) for each in read(tmp_path / file)]
    assert rows == [
        ("cpu_tile", "8", "float32", "ok"),
        ("cpu_blas", "8", "float32", "ok"),
        ("cpu_tile", "9x7x5", "float32", "ok"),
        ("cpu_blas", "9x7x5", "float32", "ok"),
        ("cpu_tile", "8", "int32", "ok"),
        ("cpu_tile", "9x7x5", "int32", "ok"),
    ]


@pytest.mark.slow
def test_a_kernel_of_ones_own_that_fails_costs_its_own_points_alone(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    for name, build in {
        "right": "lambda a, b, c: np.matmul(a, b, out=c)",
        "wrong": "lambda a, b, c: None",
        "unbuilt": "1 / 0",
        "raising": "lambda a, b, c: 1 / 0",
        "ending": "lambda a, b, c: __import__('os')._exit(3)",
    }.items():
        text = OWN.replace("lambda a, b, c: np.matmul(a, b, out=c)", build)
        (tmp_path / "own" / f"{name}.py").write_text(text)
    done = call(
        tmp_path, *SWEEP, "--kernels", "own", "--variants", "right,wrong,unbuilt,raising,ending",
        "--sizes", "8", "--tiles", "1", "--rounds", "1", "-o", "a.csv",
    )  # fmt: skip
    assert (done.code, "Traceback" in done.err) == (1, False)
    assert {each.variant: each.status for each in read(tmp_path / "a.csv")} == {
        "right": "ok",
        "wrong": "wrong",
        "unbuilt": "error",
        "raising": "error",
        "ending": "error",
    }


@pytest.mark.slow
def test_a_size_that_does_not_fit_into_memory_is_skipped(tmp_path: Path) -> None:
    done = call(tmp_path, *QUICK, *QUICKER, "--sizes", "8,2000000", "-o", "a.csv")
    assert done.code == 0
    fitting, hopeless = read(tmp_path / "a.csv")
    assert (fitting.status, hopeless.status) == ("ok", "skipped")
    assert "bytes of memory" in hopeless.reason
    alone = call(tmp_path, *QUICK, *QUICKER, "--sizes", "2000000", "-o", "b.csv")
    assert (alone.code, "no point was timed" in alone.err) == (1, True)


INTERRUPTED_WHILE_LOADING = """
import os, runpy, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.{handler})
sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["--version"]
runpy.run_module("gpubench", run_name="__main__")
"""


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize(
    ("handler", "code", "out"),
    [
        ("default_int_handler", -signal.SIGINT, ""),
        ("SIG_IGN", 0, f"gpubench {gpubench.__version__}\n"),
    ],
)
def test_ctrl_c_while_the_command_line_is_loaded_ends_it_without_a_message(
    handler: str, code: int, out: str
) -> None:
    words = [sys.executable, "-c", INTERRUPTED_WHILE_LOADING.format(handler=handler)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, "")


SIGNALLED_AT_THE_END = """
import os, signal, sys
from gpubench import cli
from gpubench.plan import description_process

def end():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)

description_process.end = end
sys.argv[1:] = ["generate", "a.npz", "--sizes", "3x5"]
cli.main()
"""


def test_a_signal_that_comes_when_a_command_has_ended_changes_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-c", SIGNALLED_AT_THE_END]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, files_in(tmp_path)) == (0, "", ["a.npz"])


INTERRUPTED_IN_A_DESTRUCTOR = """
import os, signal, sys, time
from gpubench import cli

class Ends:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.001)

def run():
    Ends()
    time.sleep(60)
    return 0

cli._run = run
cli.main()
"""

SENT_AGAIN_TOO_EARLY = INTERRUPTED_IN_A_DESTRUCTOR.replace(
    "class Ends",
    """
class Early(cli.Timer):
    def start(self):  # the signal arrives before `start` has returned, as on a loaded machine
        cli.Timer = Early.__base__
        self.function(*self.args)
        time.sleep(0.001)

cli.Timer = Early

class Ends""",
)

INTERRUPTED_IN_AN_IMPORT = """
import os, signal, sys
from types import ModuleType
from gpubench import cli

def run():
    sys.modules["gpubench.process.child"] = ModuleType("gpubench.process.child")
    os.kill(os.getpid(), signal.SIGTERM)

cli._run = run
cli.main()
"""


INTERRUPTED_IN_THE_IMPORT_OF_A_LIBRARY = """
import os, pathlib, signal, sys, time
from gpubench import cli

pathlib.Path("library.py").write_text("import os, time; os.kill(os.getpid(), 15); time.sleep(0.1)")
sys.path.insert(0, "")

def run():
    try:
        import library
    except KeyboardInterrupt:
        print("Traceback", file=sys.stderr)  # as NumPy's functions in C
    time.sleep(60)

cli._run = run
cli.main()
"""

INTERRUPTED_IN_A_LIBRARY = """
import os, signal, sys
from gpubench import cli

def run():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        raise ImportError("initialization failed") from None  # as modules of pybind11

cli._run = run
cli.main()
"""


@pytest.mark.parametrize(
    "script",
    [
        INTERRUPTED_IN_A_DESTRUCTOR,
        SENT_AGAIN_TOO_EARLY,
        INTERRUPTED_IN_AN_IMPORT,
        INTERRUPTED_IN_THE_IMPORT_OF_A_LIBRARY,
        INTERRUPTED_IN_A_LIBRARY,
    ],
)
def test_a_signal_ends_a_command_wherever_it_comes(tmp_path: Path, script: str) -> None:
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_an_interrupted_sweep_keeps_what_was_measured_and_exits_130(tmp_path: Path) -> None:
    with start(tmp_path, *LONG, "--cache", "hot") as process:
        wait_for_lines(tmp_path / "a.csv.partial", 4, process)
        process.send_signal(signal.SIGTERM)  # like Ctrl-C, which test_files.py tries
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err
    assert out.splitlines()[-1] == "a.csv"
    assert "--resume a.csv continues" in err
    assert files_in(tmp_path) == ["a.csv", "a.csv.partial"]
    rows = read(tmp_path / "a.csv")
    assert 2 <= len(rows) < 256
    assert {each.status for each in rows} == {"ok"}


SHORT_SWEEP = ("sweep", "--device", "cpu", "--sizes", "8..64:8", "--variants", "cpu_blas", *QUICKER)


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_was_and_only_as_it_was_begun(tmp_path: Path) -> None:
    with start(
        tmp_path, *SHORT_SWEEP, "--cache", "hot", "-o", "a.csv", "--samples", "b.jsonl"
    ) as process:
        wait_for_lines(tmp_path / "a.csv.partial", 4, process)
        process.kill()
        process.communicate(timeout=TIMEOUT_S)
    kept = [json.loads(line) for line in (tmp_path / "a.csv.partial").read_text().splitlines()[1:]]
    assert len(kept) >= 2
    with (tmp_path / "a.csv.partial").open("a") as file:
        file.write('{"key":["gemm","cpu_')  # a line that was being written
    before = (tmp_path / "a.csv.partial").read_bytes()
    for flags, named in (
        (("--sizes", "16"), "--sizes '8..64:8'"),
        (("--dtypes", "float64"), "--dtypes not given"),
        (("--cache", "cold"), "--cache 'hot'"),
    ):
        refused = call(tmp_path, "sweep", "--resume", "a.csv", *flags)
        assert (refused.code, len(refused.err.splitlines())) == (2, 1)
        assert f"was started with {named}" in refused.err
        assert (tmp_path / "a.csv.partial").read_bytes() == before
    done = call(tmp_path, "sweep", "--resume", "a.csv")  # the sweep to resume has samples
    assert (done.code, done.files) == (0, ["a.csv", "b.jsonl"])
    assert [row.size for row in read(tmp_path / "a.csv")] == [str(n) for n in range(8, 65, 8)]
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()[1:]]
    assert lines[: len(kept)] == kept  # and nothing was measured twice
    assert len(lines) == sum(row.rounds or 0 for row in read(tmp_path / "a.csv"))
    again = call(tmp_path, "sweep", "--resume", "a.csv")
    assert again.code == 2
    assert "a.csv is complete" in again.err


def test_a_file_does_not_make_kernels_run_by_itself(tmp_path: Path) -> None:
    settings = '{"options": {"kernels": "own", "sizes": "8", "device": "cpu"}}'
    (tmp_path / "a.csv.partial").write_text(f'{{"gpubench_sweep": {settings}}}\n')
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "planted.py").write_text("VARIANT = open('ran', 'w')\n")
    refused = call(tmp_path, "sweep", "--resume", "a.csv")
    assert (refused.code, refused.files) == (2, ["a.csv.partial", "own/planted.py"])
    assert "add --kernels own" in refused.err


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_the_sweep_goes_on_when_there_is_space(tmp_path: Path) -> None:
    # Few samples suffice, so a line has 5,000 to 10,000 bytes even on a noisy machine.
    # The user's cache stays usable: gpubench tests it with a file of 64 KiB.
    short_sweep = (
        *SWEEP,
        "--sizes",
        "8..64:2",
        "--variants",
        "cpu_blas",
        *QUICKER,
        "--precision",
        "20%",
    )
    with start(tmp_path, *short_sweep, "-o", "a.csv", limit="70000") as process:
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 74
    assert "Traceback" not in err
    assert "a.csv" in err.splitlines()[-1]
    whole_lines = (tmp_path / "a.csv.partial").read_text().splitlines()[1:-1]
    assert len(whole_lines) >= 2
    done = call(tmp_path, "sweep", "--resume", "a.csv")
    assert (done.code, done.files) == (0, ["a.csv"])
    assert [each.size for each in read(tmp_path / "a.csv")] == [str(n) for n in range(8, 65, 2)]


# ---- output


def test_a_terminal_without_unicode_loses_signs_and_nothing_else(tmp_path: Path) -> None:
    done = run(tmp_path, "variants", PYTHONIOENCODING="ascii")
    assert (done.code, done.err) == (0, "")
    assert "register_tile" in done.out


def test_no_color_is_honoured_in_a_terminal(tmp_path: Path) -> None:
    forced = call(tmp_path, "deviceinfo", FORCE_COLOR="1")
    assert ANSI in forced.out
    plain = call(tmp_path, "deviceinfo", FORCE_COLOR="1", NO_COLOR="1")
    assert not re.search(r"\x1b\[[\d;]*3\dm", plain.out)


def test_named_variants_are_listed_alone(tmp_path: Path) -> None:
    listed = call(tmp_path, "variants", "cpu_tile*", "--op", "gemm").out.splitlines()
    names = [line.split()[0] for line in listed if line.startswith("cpu_")]
    assert names == 2 * ["cpu_tile", "cpu_tile_parallel"]  # with ideas, and with dtypes and tiles


def test_a_list_of_variants_cuts_no_word_and_marks_those_left_out_of_a_sweep(
    tmp_path: Path,
) -> None:
    listed = call(tmp_path, "variants", COLUMNS="80").out
    assert max(map(len, listed.splitlines())) <= 80
    words = {word for each in variants() for word in (each.name, *each.idea.split())}
    assert words <= set(listed.split())
    assert listed.split().count("default)") == sum(not each.default for each in variants())
