"""Makes temporary folders, and removes the folders that killed processes have left."""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

TEMPORARY = "gpubench-locked-"
"""Prefix of the names of temporary folders. No folder of a user has this name."""


@contextmanager
def temporary_folder(prefix: str = TEMPORARY) -> Iterator[Path]:
    """Make a temporary folder, and remove the folder when the `with` block ends.

    The folder is locked. A killed process leaves a folder that is not locked. The first call in
    another process of the same user removes this folder. `prefix` contains `TEMPORARY`.
    """
    _remove_left_folders(Path(tempfile.gettempdir()))
    maker = os.getpid()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        with ExitStack() as stack:
            with suppress(OSError):  # a file system without locks, where no folder is removed above
                stack.enter_context(_locked(folder))
            if not folder.exists():  # another process removed the folder before it was locked
                continue
            try:
                yield folder
            finally:
                if os.getpid() == maker:  # and not a fork, which may end earlier
                    shutil.rmtree(folder, ignore_errors=True)
            return


@cache  # a process looks for such folders once
def _remove_left_folders(parent: Path) -> None:
    for left in parent.glob(f"*{TEMPORARY}*"):
        with suppress(OSError), _locked(left, fcntl.LOCK_NB) as descriptor:
            if os.fstat(descriptor).st_uid == os.geteuid():
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _locked(folder: Path, flags: int = 0) -> Iterator[int]:
    """Lock a folder, and yield its descriptor.

    Raises OSError if that is impossible, for example because another process has locked the folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | flags)
        yield descriptor
    finally:
        os.close(descriptor)


_until_exit = ExitStack()
atexit.register(_until_exit.close)


def temporary_until_exit() -> Path:
    """Make a temporary folder that is removed when this process ends."""
    return _until_exit.enter_context(temporary_folder())
