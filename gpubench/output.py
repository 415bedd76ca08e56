"""What a command writes: whole files or none, and streams whose loss ends no sweep."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from gpubench.errors import UsageError


def require_free(path: Path, *, overwrite: bool, flag: str = "--output") -> None:
    """Raises UsageError if a file must not be written there, or cannot be.

    It exists and may not be overwritten, or it is not a file but a directory, or a device such as
    /dev/null, which the file would replace.
    """
    try:
        if not path.name or "\0" in str(path):
            raise UsageError(f"{flag}: '{path}' does not name a file")
        if path.is_dir():
            raise UsageError(f"{flag}: {path} is a directory; name a file in it")
        if path.exists() and not path.is_file():
            raise UsageError(f"{flag}: {path} is not a regular file; name one, or leave it out")
        if path.exists() and not overwrite:
            raise UsageError(f"{flag}: {path} exists; --force overwrites it")
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, links in a circle, NUL
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{flag}: cannot write {path}: {reason}") from error


def make_directory(directory: Path, flag: str = "--output") -> None:
    """Make a directory where it is missing. Raises UsageError if that fails."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{flag}: cannot make the folder {directory}: {error.strerror}") from error


def write_whole(path: Path, write: Callable[[IO[bytes]], object], flag: str = "--output") -> None:
    """Write a whole file, or leave what was there: a temporary file takes its place at the end.

    It is on disk when this returns. Raises UsageError if that fails.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{flag}: cannot write {path}: {error.strerror}") from error


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
            # A terminal without × is no reason to fail.
            text = io.TextIOWrapper(io.BufferedWriter(guarded[-1]), encoding, "replace", None, True)
            setattr(sys, name, text)
    return guarded
