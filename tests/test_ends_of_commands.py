"""No process of any command is alive after the command, in whatever way the command ended.

Kernels and descriptions of these commands start daemons. The test is a subreaper, so it finds every
process.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commandline import COMMANDS, TIMEOUT_S, call
from diffs import rows
from test_processes import DAEMON, ENDS_IN_S, SLACK_S

from gpubench.hardware.host import cpu_threads
from gpubench.process import descendants
from gpubench.results import store
from gpubench.results.row import write

ON_CPU = "--device cpu --sizes 16 --rounds 1 --precision 50%"
PAIRS = "HEAD:own own --device cpu --variants mine --sizes 16 --precision 50% --pairs 2"
LINES: dict[str, tuple[str, ...]] = {
    "sweep": (
        f"{ON_CPU} --kernels own --variants mine -o out.csv",
        f"{ON_CPU} --on local --variants cpu_blas,cpu_tile --tiles 4,8 -o out.csv",
    ),
    "compare-cublas": ("--sizes 64 --kernels own",),
    "tune": (
        f"cpu_tile {ON_CPU} --where edge<4 --cache hot --budget 2 -o out.csv --winners out.toml",
    ),
    "reproduce": ("mine.toml --device cpu",),
    "show": ("a.csv", "a.csv -o out.json"),
    "report": ("a.csv -o out.html",),
    "plot": ("a.csv -o out.svg",),
    "diff": ("a.csv b.csv",),
    "ab": (f"{PAIRS} --results r",),
    "history": ("nightly",),
    "bisect": (PAIRS,),
    "judge": (
        "mine --kernels own --baseline cpu_blas --device cpu --sizes 16 --precision 50% --rounds 3",
    ),
    "explain": ("looped --kernels own --arch sm_90",),
    "build": ("naive,shared_tile --arch sm_80,sm_90 --sizes 64 --kernels own -o out.csv",),
    "variants": ("--kernels own",),
    "new-kernel": ("other --from own/looped.cu --dir out",),
    "new-operation": ("other --dir out",),
    "check": ("looped --kernels own --tiles 1", "mine --kernels own"),
    "export": ("looped --kernels own --tiles 4 --sizes 64 --arch sm_90 --dir out",),
    "deviceinfo": ("--device cpu --measure",),
    "selfcheck": ("",),
    "fleet": ("--device cpu --on local --rounds 2 -o out.csv",),
    "generate": ("out.npz --sizes 300x500",),
    "run": ("v.npz --op gemv --device cpu -o out.npz",),
}
"""For each command, command lines on which it does its work."""

FUNCTION = """
import numpy as np
from gpubench.model import CallVariant, edges
{daemon}
def build(tile, dtype):
    exec({daemon!r})
    return lambda a, b, c: np.matmul(a, b, out=c)

VARIANT = CallVariant(idea="starts daemons", runs_on="cpu", build=build, baseline="", threads=1,
    tiles=edges(1, 1, because="one is enough"))
"""

LOOPED = """
template <typename Scalar, int EDGE>
__global__ void looped(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  const int row = blockIdx.y * EDGE + threadIdx.y, column = blockIdx.x * EDGE + threadIdx.x;
  for (volatile int i = 1; M > 1 && i;) {}  // without an end, where the CPU runs it
  if (row < M && column < N) C[row * N + column] = A[row * K] * B[column];
}
"""

DESCRIBED = """
from gpubench.model import CudaVariant, edges
{daemon}
VARIANT = CudaVariant(idea="starts daemons", grid=("N/edge", "M/edge"), block=("edge", "edge"),
    tiles=edges(1, 32, because="of a test"), dtypes=("float32",), reuse=lambda tile: (1, 1))
"""

EXPERIMENT = """
title = "A loop"
source = "A user"
[[device]]
name = "A laptop"
[[sweep]]
device = "cpu"
variants = ["cpu_naive", "cpu_blas"]
sizes = [16]
cache = "hot"
rounds = 2
[[series]]
name = "loop"
figure = "ms"
device = "A laptop"
axis = "variant"
where = { size = 16, cache = "hot", tile = "" }
published = { cpu_blas = 1.25, cpu_naive = 2.5 }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the command lines. Temporary files have another folder."""
    daemon = DAEMON.format(seconds=f"98764{tmp_path.stat().st_ino}")
    own = tmp_path / "work" / "own"
    own.mkdir(parents=True)
    (own / "mine.py").write_text(FUNCTION.format(daemon=daemon))
    (own / "looped.py").write_text(DESCRIBED.format(daemon=daemon))
    (own / "looped.cu").write_text(LOOPED)
    work = own.parent
    (work / "mine.toml").write_text(EXPERIMENT)
    write(rows(), work / "a.csv")
    write(rows(own=1.2), work / "b.csv")
    store.keep("NVIDIA H200", "nightly", ".csv", (work / "a.csv").read_bytes())
    assert call(work, "generate", "v.npz", "--sizes", "30x50").code == 0
    for words in ("init -q", "add -A", "-c user.name=A -c user.email=a@b commit -q -m Start"):
        subprocess.run(["git", *words.split()], cwd=work, check=True)  # noqa: S607 # as in a shell
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return work


def require_none_left(
    folder: Path,
    words: list[str],
    number: int = 0,
    moment_s: float | None = None,
    processes: int = 1,
) -> int:
    """Run a command to its end, or send it a signal; return its exit code.

    The signal is sent after `moment_s`. Without that, it is sent when the command has started this
    number of processes.
    """
    left_by_kills = (folder.parent / "temporary").iterdir()
    for path in (*folder.glob("out*"), *folder.glob("r*"), *left_by_kills):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert descendants.become_subreaper()
    before = frozenset(descendants.descendants())
    with subprocess.Popen(
        [sys.executable, "-m", "gpubench", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until_s = time.monotonic() + (TIMEOUT_S if moment_s is None else moment_s)
        while number and process.poll() is None and time.monotonic() < until_s:
            if moment_s is None and len(descendants.descendants(process.pid)) >= processes:
                break
            time.sleep(0.001)
        if number:
            process.send_signal(number)
        _, message = process.communicate(timeout=TIMEOUT_S)
    ended_s = time.monotonic()
    while left := descendants.living(set(descendants.descendants()) - before):
        if time.monotonic() > ended_s + ENDS_IN_S + SLACK_S:
            break
        time.sleep(0.005)
    what = f"{' '.join(words)}: {process.returncode} by {number} at {moment_s}: {message}"
    if left:
        commands = [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in left]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        pytest.fail(f"{commands} outlive {what}")
    for pid in set(descendants.descendants()) - before:
        os.waitpid(pid, 0)
    assert "Traceback" not in message, what
    if process.returncode != -signal.SIGKILL:
        assert [*(folder.parent / "temporary").iterdir()] == [], what
    return process.returncode


def test_a_pool_of_compilers_ends_with_a_build_that_is_killed(folder: Path) -> None:
    words = ["build", *LINES["build"][0].split()]
    pool = 5  # the descriptions' process, its warden, two compilers, a tracker of shared memory
    code = require_none_left(folder, words, signal.SIGKILL, processes=pool)
    assert code == (-signal.SIGKILL if cpu_threads() > 1 else 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "number"),
    [("sweep", signal.SIGHUP), ("fleet", signal.SIGTERM), ("check", signal.SIGKILL)],
)
def test_nothing_outlives_a_command_that_is_stopped(
    folder: Path, command: str, number: int
) -> None:
    line = LINES[command][-1 if command == "sweep" else 0]
    expected = -signal.SIGKILL if number == signal.SIGKILL else 130
    assert require_none_left(folder, [command, *line.split()], number) == expected


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)

NEED_A_GPU = ("compare-cublas", "selfcheck")


def test_every_command_has_lines_that_the_exhaustive_test_runs() -> None:
    assert {*COMMANDS} == {*LINES}, "add the command to LINES, with arguments for which it works"


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_outlives_any_command_in_whatever_way_it_ends(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Send each signal when the command starts its first process, and at a random moment."""
    monkeypatch.setitem(globals(), "SLACK_S", 0.0)
    chance = random.Random(command)  # noqa: S311 # moments, not secrets
    refused = require_none_left(folder, [command, "--no-such-option"])
    assert refused == (128 if command == "bisect" else 2)
    for line in LINES[command]:
        words = [command, *line.split()]
        started_s = time.monotonic()
        ended = require_none_left(folder, words)
        assert (ended in {2, 128}) == (command in NEED_A_GPU)  # others did their work
        took_s = time.monotonic() - started_s
        for number in SIGNALS:
            for moment_s in (None, chance.uniform(0, took_s)):
                require_none_left(folder, words, number, moment_s)
