"""What must hold whatever a user gives: it is used, or refused in a short line; nothing else.

`held` calls something and looks on: a refusal is a GpubenchError, nothing takes long, memory stays
below a bound, no file is written but in the folder given, no program is started and no connection
made.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from gpubench.errors import GpubenchError

LONGEST_MESSAGE = 2000
"""Some list everything that is known; none repeats what it was given at length."""

MAX_BYTES = 200 * 2**20
"""Of memory at once, by what was given in a few hundred kilobytes."""

MAX_S = 20
"""On a busy machine; what ends at all takes milliseconds."""

LIMITED = True
"""Off where something else ends what hangs: libFuzzer needs the alarm for itself."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "shutil.rmtree", "shutil.move"),
}
_LEAVES = {
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "socket.connect"),
    *("pty.spawn", "socket.getaddrinfo"),
}


_ASKED = ("ldconfig", "fc-list")
"""Programs that libraries ask where others and fonts are."""


class BrokenContractError(AssertionError):
    """Something was done that nothing a user gives may lead to."""


class _Watch:
    """The interpreter reports what is done to files and processes; no hook can be taken back."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.found: list[str] = []
        sys.addaudithook(self._seen)

    def _seen(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event in _LEAVES and not any(name in str(arguments[0]) for name in _ASKED):
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
        where = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 # as the system takes it
        if "__pycache__" in where or where == os.devnull:
            return
        if not f"{where}{os.sep}".startswith(f"{self.folder}{os.sep}"):
            self.found.append(f"{event} {where}"[:300])


_watch = _Watch()


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Raises BrokenContractError if anything outside the folder was touched meanwhile."""
    _watch.found, _watch.folder = [], folder.resolve()
    try:
        yield
    finally:
        _watch.folder = None
    if _watch.found:
        raise BrokenContractError(f"touched: {_watch.found}")


@contextmanager
def _limited() -> Iterator[None]:
    """Raises BrokenContractError where it takes longer than `MAX_S`."""
    if not LIMITED:
        yield
        return

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise BrokenContractError(f"takes more than {MAX_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, MAX_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def held(call: Callable[[], Any], folder: Path) -> Any:
    """What the call returns, or None where it refuses; any other exception is a finding."""
    found = None
    tracemalloc.start(1)
    try:
        with watched(folder), _limited():
            found = call()
    except GpubenchError as error:
        checked_message(str(error))
    finally:
        _, taken = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    if taken > MAX_BYTES:
        raise BrokenContractError(f"takes {taken:,} bytes of memory")
    return found


def checked_message(message: str) -> str:
    """Raises BrokenContractError for one that nobody could read in a terminal."""
    if not message.strip():
        raise BrokenContractError("refused without a word")
    if len(message) > LONGEST_MESSAGE:
        raise BrokenContractError(f"a message of {len(message)} signs: {message[:200]}")
    return message


@contextmanager
def empty_folder() -> Iterator[Path]:
    """A folder of its own, which is the current one meanwhile."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="gpubench-fuzz-") as folder:
        os.chdir(folder)
        try:
            yield Path(folder).resolve()
        finally:
            os.chdir(before)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
