"""Starts and ends child processes. Every child of gpubench that runs Python starts here."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from gpubench.process.channel import Channel
from gpubench.text import clean_lines

PR_SET_PDEATHSIG = 1  # prctl(2): the signal that this process gets when its parent dies

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from {module} import {function}; {function}(int(sys.argv[1]), *sys.argv[2:])"
)
"""The child's program. It imports from the same paths as this process, in any current directory."""

FOLLOW = (
    "import ctypes, os, sys; parent = int(sys.argv[1]); "
    f"ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(signal.SIGTERM)}); "
    "os.getppid() == parent and os.execv(sys.argv[2], sys.argv[2:])"
)
"""Program that becomes another one, which gets SIGTERM when its parent ends."""


@dataclass(frozen=True, kw_only=True)
class Child:
    """A child process, and this process's end of a pair of sockets."""

    process: subprocess.Popen[bytes]
    socket: socket.socket

    @property
    def pid(self) -> int:
        """The child's process id, which is also the id of its process group."""
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def how_it_ended(self) -> str:
        """Return how the process ended, in words."""
        try:
            code = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "closed its channel; killed"
        if code < 0:
            return f"crashed: {signal.strsignal(-code)} (signal {-code})"
        return f"ended by itself with exit code {code}"

    def kill(self) -> None:
        """Kill the process, and all processes that its kernels started."""
        self.socket.close()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


def start(
    module: str, function: str, *words: str, environment: Mapping[str, str] | None = None
) -> Child:
    """Start a child that calls a function with the descriptor of its socket, and with `words`.

    `environment` replaces the environment of this process. The child has a process group of its
    own, so Ctrl-C does not reach it.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = subprocess.Popen(  # noqa: S603 # this interpreter, our own code
                [
                    *(sys.executable, "-P", "-c", BOOT.format(module=module, function=function)),
                    *(json.dumps(sys.path), str(theirs.fileno()), *words),
                ],
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
    except BaseException:
        ours.close()
        raise
    return Child(process=process, socket=ours)


def following(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command`, and interrupts it when this process ends."""
    return [sys.executable, "-I", "-S", "-c", FOLLOW, str(os.getpid()), *command]


def open_channel(descriptor: int) -> Channel:
    """Return a child's end of its channel, before it runs what users wrote.

    The child ends with its parent. What it prints goes to standard error, without characters that
    control a terminal. Programs that it starts do not keep the channel open.
    """
    _end_with_the_parent(descriptor)
    for stream in (sys.stdout, sys.stderr):
        stream.write = partial(_write_clean, stream.write)  # type: ignore[method-assign]
    os.dup2(2, 1)  # what users' code prints is not our output
    os.set_inheritable(descriptor, False)
    return Channel(socket.socket(fileno=descriptor))


def _write_clean(write: Callable[[str], int], text: str) -> int:
    return write(clean_lines(text))


def _end_with_the_parent(descriptor: int) -> None:
    """Let this process end with its parent, even if a user's code hangs.

    The processes that the code started end too. The system signals the parent's end to a watcher,
    which kills the group.
    """
    prctl, measuring_pid = ctypes.CDLL(None).prctl, os.getpid()
    if os.fork() == 0:
        os.close(descriptor)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == measuring_pid:
            signal.sigwait({signal.SIGTERM})
        os.killpg(measuring_pid, signal.SIGKILL)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
