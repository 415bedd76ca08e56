"""Run commands as a user types them, in this process or in a new process."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from warm import Fork

from gpubench import cli

TIMEOUT_S = 300

GROUP: Any = typer.main.get_command(cli.app)
"""The group of all commands. It is built once, because that takes a tenth of a second."""

COMMANDS = {name: GROUP.get_command(None, name) for name in GROUP.commands}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str
    folder: Path
    """The folder in which the command ran."""

    @property
    def files(self) -> list[str]:
        """The files that are in the folder now."""
        return files_in(self.folder)


def files_in(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def call(folder: Path, *arguments: str | bytes, **environment: str) -> Done:
    """Run a command in this process. A child process still measures."""
    out, err = io.StringIO(), io.StringIO()
    if Fork.forks:
        Fork.forks.open()
    handlers = {number: signal.getsignal(number) for number in cli._INTERRUPTING}
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["gpubench", *map(os.fsdecode, arguments)])
        patch.setattr(typer.main, "get_command", lambda _app: GROUP)
        for name, text in environment.items():
            patch.setenv(name, text)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    for number, handler in handlers.items():  # a command that ends ignores signals
        signal.signal(number, handler)
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue(), folder)


def outcome(*arguments: str) -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr of a command, run in this folder and process."""
    done = call(Path.cwd(), *arguments)
    return done.code, done.out, done.err


def run(folder: Path, *arguments: str, **environment: str) -> Done:
    """Run a command in a new process, to see effects on a process. This takes a second longer."""
    done = subprocess.run(
        [sys.executable, "-m", "gpubench", *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr, folder)


STARTED = """
import os, resource, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
if "{limit}":
    sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
    resource.setrlimit(resource.RLIMIT_FSIZE, (int("{limit}"),) * 2)
from gpubench.cli import main
main()
"""
"""A program that runs a command. Some shells start background jobs that ignore SIGINT; this program
does not ignore it."""


def start(folder: Path, *arguments: str, limit: str = "") -> subprocess.Popen[str]:
    """Start a command; `limit` is the maximum size in bytes of the files that it can write.

    With a limit it writes no bytecode, because other processes would read the cut files.
    """
    return subprocess.Popen(
        [sys.executable, "-c", STARTED.format(limit=limit), *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_lines(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until and process.poll() is None:
        if path.exists() and len(path.read_text().splitlines()) >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"{path.name} never had {count} lines: {process.communicate()}")


# ---- sweeps that take little time

SWEEP = ("sweep", "--device", "cpu")
QUICKER = ("--rounds", "1", "--cache", "hot")
QUICK = (*SWEEP, "--sizes", "8", "--variants", "cpu_blas")
LONG = ("sweep", "--device", "cpu", "--sizes", "8..512:2", "--variants", "cpu_blas", "-o", "a.csv")
"""A sweep that does not end before it is interrupted."""

OWN = """
import numpy as np
from gpubench.model import CallVariant
from gpubench.model import edges

VARIANT = CallVariant(
    idea="NumPy's product, whatever [the] tile",
    runs_on="cpu",
    tiles=edges(1, 2, because="of a test"),
    build=lambda tile, dtype: lambda a, b, c: np.matmul(a, b, out=c),
    dtypes=("float32",),
    baseline="cpu_blas",
    threads=1,
)
"""
"""Description of a user's kernel."""

OWN_CUDA = """
from gpubench.model import CudaVariant, Launch
from gpubench.model import edges

VARIANT = CudaVariant(
    idea="a user's own",
    tiles=edges(1, 4, because="of a test"),
    launch=lambda tile, problem: Launch(grid=(1,), block=(1,)),
    reuse=lambda tile: (1, 1),
)
"""
"""Description of a user's CUDA kernel, whose source may be empty."""


def running(argument: str) -> list[int]:
    """Return the ids of processes that have this argument."""
    pids = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            if argument in process.read_text().split("\0"):
                pids.append(int(process.parent.name))
    return pids
