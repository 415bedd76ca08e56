"""Files that a command writes: refused before the work begins, and written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

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
