"""Starts and ends child processes. Every child of gpubench that runs Python starts here."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any
from weakref import WeakSet

from gpubench.errors import NO_MORE_PROCESSES
from gpubench.hardware.host import oom_kills
from gpubench.process.channel import Channel
from gpubench.process.descendants import first_child
from gpubench.process.streams import Copier
from gpubench.process.warden import CANNOT_FORK, OVER_MEMORY
from gpubench.temporary import temporary_folder

ROOT = str(Path(__file__).parents[2])
"""The folder that contains this package."""

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from gpubench.process.warden import watch; watch(int(sys.argv.pop(1))); "
    "from gpubench.process.confine import settle; "
    "folder = sys.argv.pop(1); folder and settle(folder); "
    "from {module} import {function}; {function}(int(sys.argv[1]), *sys.argv[2:])"
)
"""Program of a child. The child imports from the same paths as this process, in any directory."""

FOLLOW = (
    "import sys; sys.path.append(sys.argv[1]); from gpubench.process.warden import follow; "
    "follow(sys.argv[2:])"
)
"""Program that starts a warden, which then runs another program, such as a compiler."""

END_S = 3.0
"""Maximum time in seconds for a warden to end. Only a warden that was stopped takes longer."""


@dataclass(frozen=True, kw_only=True)
class Child:
    """A child process with its warden, and the socket by which this process talks to the child."""

    process: subprocess.Popen[bytes]
    """The warden process. The warden ends after the child and all processes that the child started,
    with the exit code or the signal of the child."""

    socket: socket.socket
    streams: Copier
    """Copies the child's output to standard error, with the name of the speaker before each
    line."""

    oom_kills: int
    """Number of processes that the system killed for lack of memory before the child started."""

    @cached_property
    def pid(self) -> int:
        """Process id of the child.

        The id is known as soon as the child has answered for the first time.
        """
        return first_child(self.process.pid)

    @property
    def has_ended(self) -> bool:
        """Whether the child and its warden have ended."""
        return self.process.poll() is not None

    def how_it_ended(self) -> str:
        """Return how the process ended, in words."""
        try:
            code = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "closed its channel; killed"
        if code == CANNOT_FORK:
            return f"did not start: {NO_MORE_PROCESSES}"
        was_killed = code == -signal.SIGKILL and oom_kills() > self.oom_kills
        if code == OVER_MEMORY or was_killed:
            return "filled the memory of the machine; killed"
        if code < 0:
            return f"crashed: {signal.strsignal(-code)} (signal {-code})"
        return f"ended by itself with exit code {code}"

    def kill(self) -> None:
        """End the child and all processes that the child's kernels started."""
        self.socket.close()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:  # a kernel has stopped its warden
            self.process.kill()
            self.process.wait()
        self.streams.finish(END_S)


_starter = ThreadPoolExecutor(1)
"""A thread that starts children for other threads than the main thread. The system ends a child
when the thread that started the child ends, and this thread does not end."""


def start(
    module: str,
    function: str,
    *words: str,
    speaker: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Child:
    """Start a child.

    The child calls a function with the descriptor of the child's socket and `words`.

    The name `speaker` is put before each line that the child prints. `environment` replaces the
    environment of this process. If `folder` is given, the child can write only there (`settle`).
    The child has a session of its own, so Ctrl-C does not reach it.
    """
    killed_before = oom_kills()
    ours, theirs = socket.socketpair()
    streams = Copier(speaker)

    def popen() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 # this interpreter, our own code
            [
                sys.executable,
                "-P",
                "-c",
                BOOT.format(module=module, function=function),
                json.dumps(sys.path),
                str(os.getpid()),
                str(folder or ""),
                str(theirs.fileno()),
                *words,
            ],
            stdin=subprocess.DEVNULL,
            stdout=streams.descriptor,
            stderr=streams.descriptor,
            env=environment,
            pass_fds=(theirs.fileno(),),
            process_group=0,
        )

    try:
        with theirs:
            is_main = current_thread() is main_thread()
            process = popen() if is_main else _starter.submit(popen).result()
    except BaseException:
        ours.close()
        streams.close()
        raise
    streams.start()
    return Child(process=process, socket=ours, streams=streams, oom_kills=killed_before)


_programs: WeakSet[subprocess.Popen[Any]] = WeakSet()
_ended = False  # whether the programs were ended, because the command ends


def start_program(
    command: Sequence[str | Path], limits: Mapping[int, int] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start another program behind a warden.

    All processes that the program starts end when the program or this process ends. `limits` are
    soft limits of resources (`resource.RLIMIT_CORE`), and `options` are arguments of `Popen`.
    """
    words = (ROOT, str(os.getpid()), json.dumps([*(limits or {}).items()]), *map(str, command))
    warden = [sys.executable, "-I", "-S", "-c", FOLLOW, *words]
    program: subprocess.Popen[Any] = subprocess.Popen(warden, **options)  # noqa: S603 # see callers
    _programs.add(program)
    if _ended and current_thread() is not main_thread():
        program.kill()  # a warden that starts now ignores SIGTERM, as this process does
    return program


def run_program(
    command: Sequence[str | Path],
    text: bytes | None = None,
    limit_s: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to the end, with `text` as standard input, and return what the program wrote.

    `environment` replaces the environment of this process. Raises TimeoutExpired if the program
    takes longer than `limit_s`.
    """
    pipe = subprocess.PIPE
    source = subprocess.DEVNULL if text is None else pipe
    options: dict[str, Any] = {"stdin": source, "stdout": pipe, "stderr": pipe}
    with start_program(command, **options, env=environment) as program:
        try:
            out, err = program.communicate(text, limit_s)
        finally:
            program.terminate()
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)


def run_with_folder(
    command: Sequence[str | Path], text: bytes | None = None, limit_s: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Call `run_program` with a temporary folder, which is removed after the program has ended."""
    with temporary_folder() as folder:
        return run_program(command, text, limit_s, {**os.environ, "TMPDIR": str(folder)})


def end_programs() -> None:
    """End all programs that run. From now on, also end each program that another thread starts.

    Threads that wait for their programs continue.
    """
    global _ended  # noqa: PLW0603 # the command ends soon
    _ended = True
    for program in list(_programs):
        program.terminate()


_is_child = False


def runs_foreign_code() -> bool:
    """Return whether this process is a child of gpubench that may run users' code."""
    return _is_child


def open_channel(descriptor: int) -> Channel:
    """Return the child's end of the channel.

    A child calls this function before the child runs users' code.

    Programs that the child starts do not keep the channel open.
    """
    global _is_child  # noqa: PLW0603 # set once
    _is_child = True
    os.setsid()  # without a terminal, and not in the warden's group, which a kernel may kill
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.set_inheritable(descriptor, False)
    return Channel(socket.socket(fileno=descriptor), takes_files=True)
