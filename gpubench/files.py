"""Writes files without replacing other files by accident, and output streams without errors."""

import errno
import fcntl
import io
import os
import stat
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from gpubench.errors import OutputLostError, UsageError

_DISK_FAULTS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def not_written(error: OSError) -> type[UsageError]:
    """Return the type of the error to raise if a file could not be written."""
    return OutputLostError if error.errno in _DISK_FAULTS else UsageError


Content = bytes | Callable[[IO[bytes]], object]
"""Content of a file: its bytes, or a function that writes them."""


def regular(path: str | Path, flags: int) -> int:
    """Open a regular file, and return its descriptor. The function can be an `opener` of `open`.

    The function does not follow a link, and does not wait for a FIFO. Raises OSError if the path is
    not a regular file.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def open_regular(path: Path, mode: str = "rb") -> IO[bytes]:
    """Open a regular file. Raises OSError if the file is missing, a link or no regular file."""
    return open(path, mode, opener=regular)


def files_in(folder: Path, *patterns: str) -> list[Path]:
    """Return the regular files in a folder whose paths match a pattern, sorted by path.

    A folder can have the name of a file: a repository is called `fast.cu`.
    """
    paths = (path for pattern in patterns for path in folder.glob(pattern))
    return sorted(filter(os.path.isfile, paths))


def lock(descriptor: int) -> bool:
    """Lock an open file until it is closed or the process ends.

    Return False if another process holds the lock.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def make_directory(directory: Path, flag: str = "--output") -> None:
    """Make a directory if it does not exist. Raises UsageError if that fails."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"cannot make the directory {directory}: {error.strerror}"
        raise UsageError(f"{flag}: {why}") from error


class Output:
    """A file that a command writes.

    The path is checked when the object is made. The file appears only when its content is complete.

    The file replaces neither a locked file nor a file that appeared after the check. No link is
    followed.
    """

    def __init__(
        self,
        path: Path,
        *,
        overwrite: bool = False,
        flag: str = "--output",
        hint: str = "--force overwrites it",
    ) -> None:
        """Check that the path may be written.

        Raises UsageError if the file exists and must not be overwritten, or if the file cannot be
        written. The message contains the advice `hint`.
        """
        self.path = path
        self._at = f"{flag}: " if flag else ""
        if not path.name or "\0" in str(path):
            raise UsageError(f"{self._at}'{path}' does not name a file")
        self._replaces = overwrite
        try:
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode):
                kind = _KINDS.get(stat.S_IFMT(mode), "not a regular file")
                raise UsageError(f"{self._at}{path} is {kind}; name a file")
            with open_regular(path, "r+b") as there:
                if not lock(there.fileno()):
                    raise UsageError(f"{self._at}{path} is being written by another gpubench")
            if not overwrite:
                raise UsageError(f"{self._at}{path} exists; {hint}")
        except FileNotFoundError:
            self._replaces = False
        except OSError as error:
            raise self._refused(error) from error
        directory = next(each for each in path.absolute().parents if each.exists())
        if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
            raise UsageError(f"{self._at}cannot write {path}: {directory} is not writable")

    def write(self, content: Content) -> None:
        """Write the complete file. If writing fails, an existing file stays unchanged.

        The file is on disk when the function returns.

        Raises UsageError if writing fails, or if another file has appeared at the path.
        """
        self.create(content).close()

    def create(self, content: Content) -> IO[bytes]:
        """Write the complete file, and return the open file. The file is locked."""
        stem = f".gpubench-{zlib.crc32(os.fsencode(self.path.name)):08x}-"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for left in self.path.parent.glob(f"{stem}*"):
                _remove_unlocked(left)
            temporary, file = self._new_temporary(stem)
            try:
                if callable(content):
                    content(file)
                else:
                    file.write(content)
                file.flush()
                os.fsync(file.fileno())
                self._place(temporary)
                self._replaces = True
            except BaseException:
                file.close()
                raise
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error
        return file

    def _new_temporary(self, stem: str) -> tuple[Path, IO[bytes]]:
        """Make a temporary file that is locked, and return its path and the open file.

        Another process may remove the file before the file is locked. Then make another file.
        """
        while True:
            temporary = self.path.with_name(f"{stem}{os.urandom(4).hex()}")
            file = temporary.open("x+b")
            if lock(file.fileno()) and os.fstat(file.fileno()).st_nlink:
                return temporary, file
            file.close()
            temporary.unlink(missing_ok=True)

    def _place(self, temporary: Path) -> None:
        """Give the complete file its name. Raises FileExistsError if another file has this name."""
        if self._replaces:
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
        appeared = isinstance(error, FileExistsError)
        why = "another file has appeared there" if appeared else error.strerror
        return not_written(error)(f"{self._at}cannot write {self.path}: {why}")


def write_all(texts: Mapping[Path, str], *, overwrite: bool) -> None:
    """Write several files. No file appears before the contents of all files are on disk.

    Raises UsageError if a file exists and `overwrite` is false, or if writing fails.
    """
    outputs = [Output(path, overwrite=overwrite, flag="") for path in texts]
    _write_together([*zip(outputs, texts.values(), strict=True)])


def _write_together(texts: Sequence[tuple[Output, str]]) -> None:
    if not texts:
        return
    (output, text), *others = texts

    def fill(file: IO[bytes]) -> None:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
        _write_together(others)

    output.write(fill)


def _remove_unlocked(path: Path) -> None:
    """Remove a temporary file if the process that wrote the file was killed."""
    with suppress(OSError), open_regular(path, "r+b") as left:
        if lock(left.fileno()):
            path.unlink()


_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFLNK: "a symbolic link, which is not followed"}


class Stream(io.FileIO):
    """Standard output or standard error. The stream stores its first error, and raises none.

    A stream fails if its reader has ended (`| head`), or if the disk is full. A sweep still
    finishes its file.
    """

    lost: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write data. If writing fails, store the first error, and raise no error."""
        try:
            return super().write(data)
        except OSError as error:
            self.lost = self.lost or error
            return memoryview(data).nbytes


def guard_streams() -> list[Stream]:
    """Replace stdout and stderr by `Stream`s, unless they were replaced already."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file to be opened would get this number
            os.open(os.devnull, os.O_RDONLY)
    guarded = []
    for number, name in enumerate(("stdout", "stderr"), start=1):
        if getattr(sys, name) is getattr(sys, f"__{name}__"):
            encoding = getattr(getattr(sys, name), "encoding", "utf-8")
            guarded.append(Stream(number, "wb", closefd=False))
            # A terminal whose encoding lacks × still gets all other characters.
            text = io.TextIOWrapper(io.BufferedWriter(guarded[-1]), encoding, "replace", None, True)
            setattr(sys, name, text)
    return guarded
