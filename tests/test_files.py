"""If other programs lock, remove or replace files, or fill the disk, nothing is lost silently.

`docs/reliability.md` lists the failures that these tests cause.
"""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from commandline import OWN, QUICK, QUICKER, TIMEOUT_S, call, files_in, start, wait_for_lines
from samples import curve
from stub import nothing_measured

from gpubench.errors import NO_MORE_PROCESSES, UsageError
from gpubench.files import Output
from gpubench.model.measurement import LONGEST_REASON
from gpubench.results.provenance import _git
from gpubench.results.row import read, write
from gpubench.temporary import TEMPORARY, temporary_folder
from gpubench.view.job import NOTHING_MEASURED

SIZES = [str(size) for size in range(8, 65, 4)]
SHORT_SWEEP = (
    "sweep", "--device", "cpu", "--sizes", "8..64:4", "--variants", "cpu_blas",
    *QUICKER,
)  # fmt: skip
PARTIAL = "a.csv.partial"


def sizes(path: Path) -> list[str]:
    return [row.size for row in read(path)]


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert "Traceback" not in err
    return process.returncode, err.splitlines()[-1]


# ---- locked files


@pytest.mark.slow
def test_a_file_that_a_sweep_is_writing_is_left_to_it(tmp_path: Path) -> None:
    """SIGHUP then ends the sweep, as a closed terminal does, and another command resumes it."""
    with start(tmp_path, *SHORT_SWEEP, "-o", "a.csv") as first:
        wait_for_lines(tmp_path / PARTIAL, 4, first)
        first.send_signal(signal.SIGSTOP)  # so that it does not end before the refusals
        for again in (("-o", "a.csv"), ("-o", "a.csv", "--force"), ("--resume", "a.csv")):
            command = (*SHORT_SWEEP, *again) if "-o" in again else ("sweep", *again)
            late = call(tmp_path, *command)
            assert (late.code, len(late.err.splitlines())) == (2, 1), late.err
            assert "a.csv.partial is being written by another gpubench" in late.err
        first.send_signal(signal.SIGHUP)
        first.send_signal(signal.SIGCONT)
        assert ended(first)[0] == 130
    assert files_in(tmp_path) == ["a.csv", PARTIAL]
    assert 1 < len(sizes(tmp_path / "a.csv")) < len(SIZES)
    assert call(tmp_path, "sweep", "--resume", "a.csv").files == ["a.csv"]
    assert sizes(tmp_path / "a.csv") == SIZES


@pytest.mark.slow
def test_a_file_that_appears_during_a_sweep_is_kept(tmp_path: Path) -> None:
    with start(tmp_path, *SHORT_SWEEP, "-o", "a.csv", "--force") as process:
        wait_for_lines(tmp_path / PARTIAL, 2, process)
        (tmp_path / "a.csv").write_text("precious")
        code, line = ended(process)
    assert code == 2
    assert "cannot write a.csv: another file has appeared there; what was measured is in" in line
    refused = call(tmp_path, "sweep", "--resume", "a.csv")
    assert (refused.code, refused.files) == (2, ["a.csv", PARTIAL])
    assert "a.csv exists; --force overwrites it" in refused.err
    assert (tmp_path / "a.csv").read_text() == "precious"
    (tmp_path / "a.csv").rename(tmp_path / "mine.csv")
    assert call(tmp_path, "sweep", "--resume", "a.csv").files == ["a.csv", "mine.csv"]
    assert sizes(tmp_path / "a.csv") == SIZES


@pytest.mark.slow
def test_rows_survive_the_removal_of_their_directory(tmp_path: Path) -> None:
    with start(tmp_path, *SHORT_SWEEP, "-o", "out/a.csv") as process:
        wait_for_lines(tmp_path / "out" / PARTIAL, 3, process)
        shutil.rmtree(tmp_path / "out")
        assert ended(process)[0] == 0
    assert files_in(tmp_path) == ["out/a.csv"]
    assert sizes(tmp_path / "out" / "a.csv") == SIZES


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_start_leaves_no_file(tmp_path: Path) -> None:
    with start(tmp_path, *QUICK, "-o", "a.csv", limit="100") as process:
        code, line = ended(process)
    assert (code, line) == (74, "gpubench: --output: cannot write a.csv.partial: File too large")
    assert files_in(tmp_path) == []


ON_CPU = ("--device", "cpu", "--sizes", "16", "-o", "a.csv", "--force")


@pytest.mark.parametrize(
    "command",
    [
        ("sweep", *ON_CPU),
        ("tune", "cpu_tile", *ON_CPU),
        ("judge", "cpu_tile", *ON_CPU),
        ("judge", "cpu_tile", "--json", *ON_CPU),
    ],
    ids=" ".join,
)
def test_ctrl_c_before_the_first_point_leaves_the_old_file(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for old in (["a.csv"], [PARTIAL], ["a.csv", PARTIAL]):
        for name in files_in(tmp_path):
            (tmp_path / name).unlink()
        for name in old:
            (tmp_path / name).write_text("precious")
        monkeypatch.setattr("stub.MAX_POINTS", 0)
        with nothing_measured():
            done = call(tmp_path, *command)
        assert done.code == 130
        assert NOTHING_MEASURED in done.out + done.err or "--json" in command
        assert "--resume" not in done.err
        assert done.files == old
        assert {(tmp_path / name).read_text() for name in old} == {"precious"}


def test_a_sweep_that_was_interrupted_before_the_first_point_is_resumed_without_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = ("sweep", "--variants", "cpu_tile", "--tiles", "4,9999", *ON_CPU[:-1])
    with nothing_measured(), monkeypatch.context() as early:
        early.setattr("stub.MAX_POINTS", 0)
        assert call(tmp_path, *sweep).files == ["a.csv", PARTIAL]
        assert call(tmp_path, "sweep", "--resume", "a.csv").files == ["a.csv", PARTIAL]
    with nothing_measured():
        done = call(tmp_path, "sweep", "--resume", "a.csv")
    assert (done.code, done.files) == (0, ["a.csv"]), done.err
    assert [row.status for row in read(tmp_path / "a.csv")] == ["ok", "skipped"]


def test_a_sweep_that_skips_all_points_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("precious")
    sweep = ("sweep", "--device", "cpu", "--sizes", "4000000", "--variants", "cpu_blas")
    done = call(tmp_path, *sweep, "-o", "a.csv", "--force")
    other = call(tmp_path, *sweep, "-o", "b.csv")
    assert (done.code, other.code) == (1, 1)
    assert "nothing was measured, so existing files stay" in done.err
    assert (tmp_path / "a.csv").read_text() == "precious"
    assert [row.status for row in read(tmp_path / "b.csv")] == ["skipped"]


@pytest.mark.parametrize("prefix", [TEMPORARY, f".{TEMPORARY}"])
def test_the_first_call_of_a_process_removes_the_temporary_folders_of_killed_processes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    wait = (
        "import sys; from gpubench.temporary import temporary_folder\n"
        "with temporary_folder(sys.argv[1]) as folder: print(folder, flush=True); input()"
    )
    command = (sys.executable, "-c", wait, prefix)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    (tmp_path / "gpubench-of-the-user").mkdir()
    with subprocess.Popen(command, **pipes) as killed, subprocess.Popen(command, **pipes) as living:
        names = [Path(process.stdout.readline().strip()).name for process in (killed, living)]  # type: ignore[union-attr] # a pipe
        killed.kill()
        killed.wait()
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"gpubench-of-the-user", *names}
        with temporary_folder() as folder:
            kept = {path.name for path in tmp_path.iterdir()} - {folder.name}
        assert kept == {"gpubench-of-the-user", names[1]}
        living.communicate("\n")
    assert [path.name for path in tmp_path.iterdir()] == ["gpubench-of-the-user"]


def test_a_process_looks_for_folders_of_killed_processes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_folder():
        pass
    left = tmp_path / f"{TEMPORARY}left-later"
    left.mkdir()
    with temporary_folder():
        assert left.exists()


def test_links_and_what_they_point_to_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / f"{TEMPORARY}link").symlink_to("precious")
    with temporary_folder():
        assert (tmp_path / f"{TEMPORARY}link" / "file").exists()


def test_folders_of_other_users_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{TEMPORARY}of-another-user"
    left.mkdir()
    other = os.geteuid() + 1
    monkeypatch.setattr("os.geteuid", lambda: other)
    with temporary_folder():
        assert left.exists()


def test_a_fork_that_ends_leaves_the_temporary_folder_of_its_parent(tmp_path: Path) -> None:
    code = (
        "import os, sys; from gpubench.temporary import temporary_until_exit\n"
        "folder = temporary_until_exit()\n"
        "if not (fork := os.fork()): sys.exit()\n"
        "os.waitpid(fork, 0); print(folder.exists())"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = (sys.executable, "-c", code)
    assert subprocess.run(command, env=environment, stdout=-1, check=True).stdout == b"True\n"
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_writable_is_named_before_the_work(tmp_path: Path) -> None:
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root can write everywhere
    try:
        with pytest.raises(UsageError, match=r"cannot write /new/a.csv: / is not writable"):
            Output(Path("/new/a.csv"))
    finally:
        os.seteuid(user)
    Output(tmp_path / "new" / "a.csv")


def test_a_new_kernel_that_does_not_fit_on_the_disk_leaves_the_old_one(tmp_path: Path) -> None:
    assert call(tmp_path, "new-kernel", "mine").code == 0
    before = {name: (tmp_path / name).read_text() for name in files_in(tmp_path)}
    with start(tmp_path, "new-kernel", "mine", "--force", limit="100") as process:
        assert ended(process)[0] == 74
    assert {name: (tmp_path / name).read_text() for name in files_in(tmp_path)} == before


@pytest.mark.parametrize("link", ["x.csv", "x.csv.partial"])
def test_a_link_beside_a_configurations_output_is_not_followed(tmp_path: Path, link: str) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.toml").write_text('output = "x.csv"\nsizes = "8"\ndevice = "cpu"\n')
    (tmp_path / "here" / link).symlink_to("../away")
    done = call(tmp_path / "here", "sweep", "--config", "a.toml", "--force", "--rounds", "1")
    assert done.code == 2
    assert "leads out of" in done.err or "is a symbolic link, which is not followed" in done.err
    assert not (tmp_path / "away").exists()


def test_a_kernel_that_is_a_link_is_not_loaded_from_outside(tmp_path: Path) -> None:
    (tmp_path / "away.py").write_text(f"open('ran', 'w')\n{OWN}")
    (tmp_path / "own" / "gemm").mkdir(parents=True)
    for place in (tmp_path / "own", tmp_path / "own" / "gemm"):
        (place / "mine.py").symlink_to(tmp_path / "away.py")
        done = call(tmp_path, "variants", "--kernels", "own")
        assert (done.code, len(done.err.splitlines())) == (2, 1)
        assert "mine.py is a link that leads out of" in done.err
        (place / "mine.py").unlink()
    assert files_in(tmp_path) == ["away.py"]


EXPERIMENT = """
title = "Sizes"
source = "A user"
[[sweep]]
device = "cpu"
variants = ["cpu_blas"]
sizes = "8..64:4"
cache = "hot"
rounds = 1
dtypes = ["float32"]
"""


@pytest.mark.slow
def test_a_killed_reproduction_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(EXPERIMENT)
    command = ("reproduce", "mine.toml", "--device", "cpu")
    partial = tmp_path / "out" / "mine.sweep-1.csv.partial"
    with start(tmp_path, *command, "--dir", "out") as process:
        wait_for_lines(partial, 5, process)
        process.send_signal(signal.SIGSTOP)  # so that it does not end before the refusal
        late = call(tmp_path, *command, "--dir", "out", "--force")
        assert (late.code, late.err.count("is being written by another gpubench")) == (2, 1)
        process.kill()
        process.communicate(timeout=TIMEOUT_S)
    kept = partial.read_bytes().splitlines()[1:]
    refused = call(tmp_path, *command, "--dir", "out")
    assert refused.code == 2
    assert "--resume out continues the run, --force starts a new run" in refused.err
    assert partial.read_bytes().splitlines()[1:] == kept
    assert call(tmp_path, *command, "--resume", "out").code == 0
    assert files_in(tmp_path / "out") == ["mine.csv", "reproduce.csv", "reproduce.md"]
    rows = read(tmp_path / "out" / "mine.csv")
    assert [row.size for row in rows] == SIZES
    times = [f'"started_utc":"{row.started_utc}"'.encode() in b"".join(kept) for row in rows]
    assert sum(times) == len(kept)  # nothing was measured twice
    again = call(tmp_path, *command, "--resume", "out")
    assert "--resume: nothing to continue: out holds no sweep of these" in again.err


@pytest.mark.slow
def test_a_sweep_of_an_earlier_reproduction_is_overwritten_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(EXPERIMENT)
    (tmp_path / "out").mkdir()
    for name in ("mine.sweep-1.csv", "mine.sweep-1.csv.partial"):
        (tmp_path / "out" / name).write_text("precious")
        refused = call(tmp_path, "reproduce", "mine.toml", "--device", "cpu", "--dir", "out")
        assert refused.code == 2
        assert f"out/{name} exists" in refused.err
        assert (tmp_path / "out" / name).read_text() == "precious"
        (tmp_path / "out" / name).unlink()


# ---- caches

FULL = """
import numba.core.caching
def full(*_):
    raise OSError(28, "No space left on device")
numba.core.caching.IndexDataCacheFile.save = full
"""


@pytest.mark.slow
def test_a_full_disk_below_numbas_cache_costs_time_alone(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FULL)
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    command = (*QUICK[:-1], "cpu_naive", "--dtypes", "float32", *QUICKER)
    done = call(tmp_path, *command, "-o", "a.csv", PYTHONPATH=path)
    assert {row.status for row in read(tmp_path / "a.csv")} == {"ok"}, done.err


@pytest.mark.slow
def test_without_a_usable_cache_kernels_are_compiled_for_the_run_and_it_says_so_once(
    tmp_path: Path,
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = (*QUICK[:-1], "cpu_naive", "--dtypes", "float32", "--rounds", "2", "--cache", "hot")
    nowhere = {"XDG_CACHE_HOME": "/proc/nowhere", "TMPDIR": str(temporary)}
    done = call(tmp_path, *command, "-o", "a.csv", **nowhere)
    assert (done.code, done.files) == (0, ["a.csv"])
    why = "kernels are compiled only for this run, because /proc/nowhere/gpubench"
    assert done.err.count(why) == 1
    assert list(temporary.iterdir()) == []


def test_the_index_of_a_repository_is_read_and_not_written(tmp_path: Path) -> None:
    """On a full disk, git's lock would stay, and the next 'git commit' would fail."""
    for words in (("init", "-q"), ("add", "-A")):
        (tmp_path / "a.txt").write_text(words[0])
        subprocess.run(["git", *words], cwd=tmp_path, check=True)  # noqa: S607 # the user's git
    before = (tmp_path / ".git" / "index").read_bytes()
    os.utime(tmp_path / "a.txt", (1, 1))  # now `git status` would update the index
    assert _git(tmp_path, "status", "--porcelain") == "A  a.txt"
    assert (tmp_path / ".git" / "index").read_bytes() == before


# ---- text from files

STEERS = "a\x1b[2J\x9b\u202eb"


def test_a_file_name_cannot_steer_the_terminal(tmp_path: Path) -> None:
    name = "a\\u001b[2J\\u202eb.csv"  # the name of a configuration
    (tmp_path / "a.toml").write_text(f'output = "{name}"\nsizes = "8"\ndevice = "cpu"\n')
    done = call(tmp_path, "sweep", "--config", "a.toml", "--dry-run")
    assert (done.code, done.files) == (0, ["a.toml"])
    assert "would write: a?[2J?b.csv" in done.out
    done = call(tmp_path, "generate", f"{STEERS}.bin", "--sizes", "4")
    assert (done.code, f"{STEERS}.bin" in done.files) == (0, True)
    assert done.out.startswith("a?[2J??b.bin: A 4x4")
    refused = call(tmp_path, *QUICK, "--config", f"{STEERS}.toml")
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    assert "cannot read a?[2J??b.toml" in refused.err


@pytest.mark.slow
def test_a_picture_is_well_formed_whatever_the_names(tmp_path: Path) -> None:
    rows = [row for name in (f"{STEERS}\uffff", "=1+1") for row in curve(name, (8, 4, 6))]
    write(rows, tmp_path / f"{STEERS}.csv")
    done = call(tmp_path, "plot", f"{STEERS}.csv", "-o", "a.svg")
    assert (done.code, done.err) == (0, "")
    root = ET.parse(tmp_path / "a.svg").getroot()  # noqa: S314 # ours
    assert root.tag.endswith("svg")
    text = (tmp_path / "a.svg").read_text()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\uffff]", text)
    assert "=1+1" in text
    assert "'=1+1" not in text


@pytest.mark.slow
def test_an_exception_of_ten_megabytes_is_cut_to_a_reason(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    raising = "def fail(*_):\n    raise ValueError('\\x1b' + 10_000_000 * 'x')\n"
    text = OWN.replace("lambda a, b, c: np.matmul(a, b, out=c)", "fail")
    (tmp_path / "own" / "mine.py").write_text(raising + text)
    kernels = ("--kernels", "own", "--variants", "mine", "--tiles", "1", "--dtypes", "float32")
    done = call(tmp_path, *QUICK[:-2], *kernels, "--rounds", "1", "-o", "a.csv")
    assert done.code == 1
    assert len(done.out) + len(done.err) < 5 * LONGEST_REASON
    assert "\x1b" not in done.out + done.err
    (row,) = read(tmp_path / "a.csv")
    assert row.reason.startswith("failed while running: ValueError: ?xxx")
    assert len(row.reason) == LONGEST_REASON


# ---- paths and options


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), NO_MORE_PROCESSES),
        (RuntimeError("can't start new thread"), NO_MORE_PROCESSES),
        (OSError(errno.EROFS, "Read-only file system"), "the system: Read-only file system"),
    ],
)
def test_a_refusal_of_the_system_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def refused(*_: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr("gpubench.process.child.subprocess.Popen", refused)
    done = call(tmp_path, *QUICK)
    assert (done.code, done.err.count("\n"), done.files) == (2, 1, [])
    assert done.err.startswith(f"gpubench: {message}")


def test_a_current_directory_that_was_deleted_is_one_line(tmp_path: Path) -> None:
    commands = [
        ("diff", "a.csv", "b.csv"),
        ("variants", "--kernels", "own"),
        (*QUICK, "--kernels", "own"),
    ]
    (tmp_path / "gone").mkdir()
    code = (
        "import os, sys\nos.rmdir(os.getcwd())\nfrom gpubench.cli import main\n"
        f"for command in {commands}:\n"
        "    sys.argv[1:] = command\n"
        "    try:\n        main()\n"
        "    except SystemExit as error:\n        assert error.code == 2\n"
    )
    # -P leaves the current directory out of the path, as for the installed program. With it, Python
    # 3.13 fails to import extension modules from anywhere once that directory is deleted.
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path / "gone",
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (0, len(commands)), done.stderr
    assert all(line.startswith("gpubench: ") for line in lines), lines
