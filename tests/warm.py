"""Start the tests' Python processes as forks of one process, which has imported their modules.

An import of NumPy, Numba and the package takes longer than most tests. A fork has descriptors, a
directory, an environment and signals of its own, and is a child of the test's process, as a started
process is. A fork differs in four things: its modules are imported already; they are not freed
at the end; `/proc` shows the command line and the environment of the copied process; and C
libraries have read that environment. Tests that depend on these things use the fixture `cold`.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import types
import warnings
from itertools import dropwhile
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
"""Option of prctl(2): this process becomes the parent of orphans among its descendants."""

MODULES = (
    "gpubench.cli", "gpubench.commands.sweep", "gpubench.engine.run", "rich.status",
    "gpubench.engine.child.serve", "gpubench.backends.cpu.backend", "numba",
)  # fmt: skip

ISOLATED = ("-I", "-P", "-S")
"""Options that keep Python from importing modules in the current directory."""

READ_AT_IMPORT = ("PYTHON", "NUMBA_", "OMP_NUM", "OPENBLAS_NUM", "MPL", "LD_", "CUDA_VISIBLE")
"""Beginnings of names of variables that Python reads at its start, or modules at their import."""

WITHOUT_EFFECT = "PYTHONNOUSERSITE"
"""A variable that children with foreign code get. An environment for tests has no user's site."""

MAX_BYTES = 2**20
MAX_DESCRIPTORS = 64

Popen = subprocess.Popen


def _read_at_import(environment: dict[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in environment.items()
        if name.startswith(READ_AT_IMPORT) and name != WITHOUT_EFFECT
    }


class Forks:
    """The process that is copied, which starts when it is first needed, and the channel to it.

    A command ends all processes that it starts. A test that calls a command in its own process must
    therefore open this object before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()  # this process becomes the parent of orphans
        self._environment = dict(os.environ)
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Start the process that is copied, unless it runs."""
        if self._process:
            return
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", __file__, str(theirs.fileno()), str(os.getpid())]
        with theirs:
            self._process = Popen(
                command, pass_fds=[theirs.fileno()], cwd="/", env=self._environment
            )
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)

    def takes(self, arguments: Any, environment: dict[str, str]) -> bool:
        """Whether a fork can run this command: Python with a program or a module.

        The caller must be this process, not a process that a test forked.
        """
        options = [word for word in arguments[1:] if word not in ISOLATED][:1]
        python = arguments[0] == sys.executable and options in (["-c"], ["-m"])
        python = python and os.getpid() == self._owner
        return python and _read_at_import(environment) == _read_at_import(self._environment)

    def start(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Start a fork for a request, and return its process id."""
        message = json.dumps(request | {"parent": os.getpid()}).encode()
        with self._lock:
            self.open()
            socket.send_fds(self._socket, [message], descriptors)
            return int(self._socket.recv(MAX_BYTES))

    def close(self) -> None:
        if self._process:
            self._socket.close()
            self._process.wait()


class Fork(subprocess.Popen):  # type: ignore[type-arg]
    """A process that `forks` starts, if it can."""

    forks: Forks | None = None

    def _execute_child(self, args: Any, *rest: Any) -> None:
        _, preexec, _, passed, cwd, env, _, _, shell, *pipes = rest[:15]
        session, group = rest[-2:]
        words = [os.fspath(word) for word in args] if isinstance(args, list | tuple) else [""]
        environment = dict(os.environ if env is None else env)
        if preexec or shell or session or not (self.forks and self.forks.takes(words, environment)):
            super()._execute_child(args, *rest)
            return
        sys.audit("subprocess.Popen", words[0], words, cwd, env)
        standard = [pipes[0], pipes[3], pipes[5]]
        standard = [own if end == -1 else end for own, end in enumerate(standard)]
        request = {
            "words": words[1:],
            "cwd": os.path.realpath(cwd or Path.cwd()),
            "environment": environment,
            "group": group,
            "descriptors": [0, 1, 2, *passed],
        }
        self.pid = self.forks.start(request, [*standard, *passed])
        self._child_created = True
        self._close_pipe_fds(*pipes)


# ---- the process that is copied


def serve(descriptor: int, parent: int) -> list[str]:
    """Fork for each request. In each fork, return the words of its command."""
    for name in MODULES:
        __import__(name)
    sys.modules["gpubench.plan.registry"].libraries()  # reads the descriptions of all kernels
    gc.collect()
    gc.freeze()
    channel = socket.socket(fileno=descriptor)
    while True:
        content, descriptors, *_ = socket.recv_fds(channel, MAX_BYTES, MAX_DESCRIPTORS)
        if not content:
            os._exit(0)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            if (middle := os.fork()) == 0:  # the end of this process makes the fork an orphan
                if os.fork() == 0:
                    break
                os._exit(0)
        os.waitpid(middle, 0)
        for received in descriptors:
            os.close(received)
    between = os.getppid()
    while os.getppid() == between != parent:
        signal.sigtimedwait([], 0.0005)
    if os.getppid() != parent:  # the parent has ended
        os._exit(1)
    request = json.loads(content)
    if request["group"] >= 0:
        os.setpgid(0, request["group"])
    channel.send(str(os.getpid()).encode())
    channel.detach()
    _take(descriptors, request["descriptors"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return request["words"]


def _take(descriptors: list[int], numbers: list[int]) -> None:
    """Give the descriptors these numbers, and close all others."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 512) for descriptor in descriptors]
    os.closerange(3, 512)
    for descriptor, number in zip(high, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def run(words: list[str]) -> None:
    """Run the command as `python` does."""
    if words[0] not in ISOLATED:
        sys.path.insert(0, str(Path.cwd()) if words[0] == "-m" else "")
    option, program, *sys.argv[1:] = dropwhile(ISOLATED.__contains__, words)
    if option == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    sys.argv[0] = option
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), vars(module))  # noqa: S102 # a command of a test


def end(code: object) -> None:
    """End the process as Python does, but free no module, because that copies all (45 ms).

    Return if Python itself must report an error, such as a stream that cannot be written.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    if code is None or isinstance(code, int):
        os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    try:
        run(serve(int(sys.argv[1]), int(sys.argv[2])))
    except SystemExit as ended:
        end(ended.code)
        raise
    end(0)
