"""The processes of a command: all of them end with it, in whatever way it ends."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from commandline import QUICKER, TIMEOUT_S, call, start

from gpubench.process import descendants
from gpubench.process.child import start_program

DAEMON = """
import os
if (middle := os.fork()) == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{seconds}"])
    os._exit(0)
os.waitpid(middle, 0)
"""
"""Starts a daemon: its parent has ended, and it has a session of its own."""

KERNEL = """
import time
import numpy as np
from gpubench.model import CallVariant, edges

{started}

def build(tile, dtype):
    def call(a, b, c):
        np.matmul(a, b, out=c)
        {then}
    return call

VARIANT = CallVariant(
    idea="it starts a daemon", tiles=edges(1, 1, because="one is enough"), runs_on="cpu",
    build=build, baseline="", threads=1, dtypes=("float32",),
)
"""

ENDS_IN_S = 2.0
SLACK_S = 20.0  # of a loaded machine


def running(argument: str) -> list[int]:
    """Processes that were started with it as an argument."""
    pids = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # ended meanwhile
            if argument in process.read_text().split("\0"):
                pids.append(int(process.parent.name))
    return pids


@pytest.fixture
def argument(tmp_path: Path) -> str:
    return f"98765{tmp_path.stat().st_ino}"


@pytest.fixture
def program(argument: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that starts a daemon, behind a subreaper of its own."""
    code = DAEMON.format(seconds=argument) + "print('x', flush=True); import time; time.sleep(600)"
    command = [sys.executable, "-c", code]
    with start_program(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline()
        yield process
        process.kill()


def all_ended(ends: list[int]) -> bool:
    """Whether the processes of these descriptors end in time."""
    until = time.monotonic() + ENDS_IN_S + SLACK_S
    ended = [
        bool(select.select([end], [], [], max(0, until - time.monotonic()))[0]) for end in ends
    ]
    for end in ends:
        os.close(end)
    return all(ended)


def test_a_daemon_is_a_descendant_and_ends_with_the_others(
    program: subprocess.Popen[bytes],
) -> None:
    pids = [program.pid, *descendants.descendants(program.pid)]
    assert len(pids) == 3  # the warden, the program, and the daemon
    assert set(pids) <= set(descendants.descendants())
    assert not set(descendants.descendants(without=[program.pid])) & set(pids)
    assert descendants.living(pids) == pids
    program.terminate()
    program.wait()
    assert program.returncode == -signal.SIGTERM
    assert descendants.living(pids) == []


def test_the_cpu_time_includes_threads_and_children_that_have_ended() -> None:
    work = "import time\nwhile time.thread_time() < 0.05: pass\n"
    code = f"""
import os, threading, sys
thread = threading.Thread(target=exec, args=({work!r}, {{}}))
thread.start(); thread.join()
if os.fork() == 0:
    exec({work!r}); os._exit(0)
os.wait()
print("x", flush=True); sys.stdin.read()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        pids = descendants.descendants()
        assert process.pid in pids
        together_ns = descendants.cpu_ns(pids)
        assert descendants.cpu_ns([process.pid]) > 0.09e9  # 0.01 s of the child may be lost
        assert together_ns >= descendants.cpu_ns([process.pid])
        assert process.stdin
        process.stdin.close()
    assert descendants.cpu_ns([process.pid]) == 0


def test_what_a_description_started_ends_with_the_command(tmp_path: Path, argument: str) -> None:
    (tmp_path / "own").mkdir()
    started = DAEMON.format(seconds=argument)
    (tmp_path / "own" / "mine.py").write_text(KERNEL.format(started=started, then=""))
    done = call(tmp_path, "variants", "--kernels", "own", "--device", "cpu")
    assert done.code == 0
    assert "it starts a daemon" in done.out
    assert running(argument) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_what_a_kernel_started_ends_with_a_sweep_that_is_stopped(
    tmp_path: Path, argument: str, number: str
) -> None:
    (tmp_path / "own").mkdir()
    text = KERNEL.format(started=DAEMON.format(seconds=argument), then="time.sleep(600)")
    (tmp_path / "own" / "mine.py").write_text(text)
    command = ("sweep", "--device", "cpu", "--kernels", "own", "--variants", "mine", "--sizes", "8")
    with start(tmp_path, *command, *QUICKER, "-o", "a.csv") as process:
        while not (tmp_path / "a.csv.partial").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        before = frozenset(descendants.descendants())
        started = [os.pidfd_open(pid) for pid in descendants.descendants(process.pid)]
        assert len(started) >= 2
        process.send_signal(signal.Signals[number])
        assert all_ended(started)
        process.communicate(timeout=TIMEOUT_S)
        assert set(descendants.living(descendants.descendants())) <= before
    assert running(argument) == []
    assert process.returncode == (-signal.SIGKILL if number == "SIGKILL" else 130)
    assert (tmp_path / "a.csv").exists() == (number != "SIGKILL")


@pytest.mark.slow
def test_a_program_of_check_ends_with_it(tmp_path: Path) -> None:
    assert call(tmp_path, "new-kernel", "mine").code == 0
    source = tmp_path / "own" / "gemm" / "mine.cu"
    hangs = "const int row = blockIdx.y * EDGE + threadIdx.y;"
    text = source.read_text().replace(hangs, f"for (volatile int i = 1; i;) {{}}\n  {hangs}")
    assert text != source.read_text()
    source.write_text(text)
    with start(tmp_path, "check", "mine", "--kernels", "own") as process:
        while not (pids := [p for p in descendants.descendants(process.pid) if is_program(p)]):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        ends = [os.pidfd_open(pid) for pid in pids]
        process.terminate()
        assert all_ended(ends)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130


def is_program(pid: int) -> bool:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return words[0].endswith("/program")
    return False
