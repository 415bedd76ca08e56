"""What leaves the program: clean text, files that overwrite no other, streams that may be lost."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import secrets
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from gpubench.errors import UsageError

Content = bytes | Callable[[IO[bytes]], object]
"""Of a file: its bytes, or what writes them."""


def regular(path: str | Path, flags: int) -> int:
    """An opener, as `open` takes it, of regular files: follows no link, waits for no FIFO.

    Raises OSError for anything else.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def open_regular(path: Path, mode: str = "rb") -> IO[bytes]:
    """Open a file that must be a regular one. Raises OSError."""
    return open(path, mode, opener=regular)


def lock(descriptor: int) -> bool:
    """Lock an open file until it is closed or the process ends; False if another holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def make_directory(directory: Path, flag: str = "--output") -> None:
    """Make a directory where it is missing. Raises UsageError if that fails."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{flag}: cannot make the folder {directory}: {error.strerror}") from error


class Output:
    """A file that a command writes: claimed before the work, put in its place when it is whole.

    It never takes the place of another file than the one that was there at the claim, nor of one
    that another process holds; no link is followed.
    """

    def __init__(
        self,
        path: Path,
        *,
        overwrite: bool = False,
        flag: str = "--output",
        hint: str = "--force overwrites it",
    ) -> None:
        """Raises UsageError if a file must not be written there, or cannot be.

        It exists and may not be overwritten (`hint` says what helps), or it is not a regular file.
        """
        self.path = path
        self._at = f"{flag}: " if flag else ""
        if not path.name or "\0" in str(path):
            raise UsageError(f"{self._at}'{path}' does not name a file")
        self._was: _Identity | None = None
        try:
            facts = path.lstat()
            self._was = _identity(facts)
            if not stat.S_ISREG(facts.st_mode):
                kind = _KINDS.get(stat.S_IFMT(facts.st_mode), "not a regular file")
                raise UsageError(f"{self._at}{path} is {kind}; name a file, or leave it out")
            with open_regular(path, "r+b") as there:
                if not lock(there.fileno()):
                    raise UsageError(f"{self._at}{path} is being written by another gpubench")
            if not overwrite:
                raise UsageError(f"{self._at}{path} exists; {hint}")
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._refused(error) from error

    def write(self, content: Content) -> None:
        """Write the whole file, or leave what was there. It is on disk when this returns.

        Raises UsageError if that fails, or another file has appeared there.
        """
        self.create(content).close()

    def create(self, content: Content) -> IO[bytes]:
        """As `write`, and the file stays open, locked until it is closed."""
        temporary = self.path.with_name(f".gpubench-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = temporary.open("x+b")
            try:
                lock(file.fileno())
                if callable(content):
                    content(file)
                else:
                    file.write(content)
                file.flush()
                os.fsync(file.fileno())
                try:
                    self._place(temporary)
                except FileExistsError as error:
                    error.strerror = "another file has appeared there"
                    raise
                self._was = _identity(os.fstat(file.fileno()))
            except BaseException:
                file.close()
                raise
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error
        return file

    def _place(self, temporary: Path) -> None:
        """Give the whole file its name. Raises FileExistsError if another file has it."""
        if self._was is not None and os.path.lexists(self.path):
            with open_regular(self.path, "r+b") as there:
                if not lock(there.fileno()) or _identity(self.path.lstat()) != self._was:
                    raise FileExistsError
                temporary.replace(self.path)
            return
        try:
            os.link(temporary, self.path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
            temporary.replace(self.path)

    def _refused(self, error: OSError) -> UsageError:
        return UsageError(f"{self._at}cannot write {self.path}: {error.strerror}")


_Identity = tuple[int, int, int, int]

_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFLNK: "a symbolic link, which is not followed"}


def _identity(facts: os.stat_result) -> _Identity:
    """What tells a file from another of its name, or from itself after a change."""
    return facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_size


class Stream(io.FileIO):
    """Standard output or error. What cannot be written is lost, and remembered, not raised.

    The reader may have gone (`| head`), the disk be full, the stream be closed from the start:
    a sweep still finishes its file.
    """

    lost: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Raises nothing."""
        try:
            return super().write(data)
        except OSError as error:
            self.lost = self.lost or error
            return memoryview(data).nbytes


def guard_streams() -> list[Stream]:
    """Put `Stream`s in the places of stdout and stderr, unless something else is there already."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: a file would take its number, and get what is printed
            os.open(os.devnull, os.O_RDONLY)
    guarded = []
    for number, name in enumerate(("stdout", "stderr"), start=1):
        if getattr(sys, name) is getattr(sys, f"__{name}__"):
            encoding = getattr(getattr(sys, name), "encoding", "utf-8")
            guarded.append(Stream(number, "wb", closefd=False))
            # A terminal that has no × still gets the rest.
            text = io.TextIOWrapper(io.BufferedWriter(guarded[-1]), encoding, "replace", None, True)
            setattr(sys, name, text)
    return guarded
