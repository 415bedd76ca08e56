"""The contract for any input: it is read, or refused with one short line.

`call_within_contract` checks a call: it may refuse by a GpubenchError, it ends in time, and it
writes no file outside a folder, starts no program, and makes no connection.
"""

import os
import signal
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from gpubench.cache import user_cache
from gpubench.errors import LONGEST_MESSAGE, GpubenchError
from gpubench.results import store
from gpubench.temporary import TEMPORARY

MAX_S = 60
"""Limit of a call's CPU time in seconds. The first call imports modules; others are short."""

MAX_WAITING_S = 600
"""Limit of a call's wall time in seconds, on a machine with other work."""

REFUSALS: deque[str] = deque(maxlen=20)
"""The last messages with which inputs were refused."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate",
    "os.chmod", "os.chown", "shutil.rmtree", "shutil.move",
}  # fmt: skip
_STARTS = {
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "socket.connect",
    "pty.spawn", "socket.getaddrinfo",
}  # fmt: skip

STORE = "store"
"""Folder of saved results of `--save` and `fleet`, inside the folder of the input."""

_ALLOWED = ("ldconfig", "fc-list")
"""Programs that libraries start to find other libraries and fonts."""


class BrokenContractError(AssertionError):
    """An input caused an effect that no input may cause."""


class _Watch:
    """Records accesses to files and processes. It is made once, because an audit hook stays."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.found: list[str] = []
        sys.addaudithook(self._seen)

    def _seen(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event in _STARTS and not any(name in str(arguments[0]) for name in _ALLOWED):
            self.found.append(f"{event} {arguments!r}"[:300])
        elif event == "open":
            path, _, flags = arguments
            if flags & _WRITES and isinstance(path, str | bytes | os.PathLike):
                self._changed(event, path)
        elif event in _CHANGES:
            for path in arguments[: 2 if event in {"os.rename", "os.link"} else 1]:
                if isinstance(path, str | bytes | os.PathLike):
                    self._changed(event, path)

    def _changed(self, event: str, path: Any) -> None:
        where = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 # without following links
        rates = user_cache("rates")  # the CPU's rates, which the first sweep writes
        if "__pycache__" in where or where in {os.devnull, str(rates.parent)}:
            return
        if f"{where}{os.sep}".startswith(f"{rates}{os.sep}"):
            return
        if where.startswith(str(Path(tempfile.gettempdir(), TEMPORARY))):
            return
        if not f"{where}{os.sep}".startswith(f"{self.folder}{os.sep}"):
            self.found.append(f"{event} {where}"[:300])


_watch = _Watch()


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Raise BrokenContractError if the block touches anything outside the folder."""
    _watch.found, _watch.folder = [], folder.resolve()
    try:
        yield
    finally:
        _watch.folder = None
    if _watch.found:
        raise BrokenContractError(f"touched: {_watch.found}")


@contextmanager
def _limited() -> Iterator[None]:
    """Raise BrokenContractError if the block takes longer than `MAX_S` or `MAX_WAITING_S`."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise BrokenContractError(f"takes more than {MAX_S} s")

    before = {number: signal.signal(number, late) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, MAX_S)
    signal.setitimer(signal.ITIMER_REAL, MAX_WAITING_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def call_within_contract(call: Callable[[], Any], folder: Path) -> Any:
    """Return what the call returns, or None if it refuses. Any other exception is a finding."""
    try:
        with watched(folder), _limited(), warnings.catch_warnings():
            warnings.simplefilter("error", SyntaxWarning)  # Python warns of a user's text
            return call()
    except GpubenchError as error:
        REFUSALS.append(checked_message(str(error)))
        return None


def checked_message(message: str) -> str:
    """Raise BrokenContractError if a message is empty, or too long for a terminal."""
    if not message.strip():
        raise BrokenContractError("refused without a reason")
    if len(message.removeprefix("gpubench: ")) > LONGEST_MESSAGE:
        raise BrokenContractError(f"a message of {len(message)} characters: {message[:200]}")
    return message


@contextmanager
def empty_folder() -> Iterator[Path]:
    """Yield a new folder, which is the current directory in the block, and has the store."""
    before = Path.cwd()
    with (
        tempfile.TemporaryDirectory(prefix="gpubench-fuzz-") as folder,
        patch.dict(os.environ, {store.VARIABLE: str(Path(folder).resolve() / STORE)}),
    ):
        os.chdir(folder)
        try:
            yield Path(folder).resolve()
        finally:
            os.chdir(before)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file in a folder, by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
