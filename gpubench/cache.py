"""The user's cache, which keeps compiled kernels and results that take long to compute.

Without the cache, gpubench takes longer, and nothing else changes.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec
import platformdirs

from gpubench.errors import UsageError
from gpubench.files import Output, open_regular
from gpubench.process.confine import few_variables
from gpubench.temporary import TEMPORARY, temporary_until_exit

_PROBE_BYTES = 2**16
"""Number of bytes that are written to test the cache. A small kernel has about this size."""

OWN = "own"
"""Name of a folder in the cache. The folder has a kernel of gpubench that is run like a user's
kernel. The compiled code of this kernel is copied for the processes of users' kernels."""

SHARED = "shared"
"""Subfolder, in the folder for foreign code, of processes that run no user's function."""

USERS = "users"
"""Subfolder that has a folder for each user's function. Only the function's own processes write
there. Otherwise a function could write files that the process of a library or of another function
loads, such as compiled kernels."""

DESCRIPTIONS = "descriptions"
"""Subfolder of processes that run only descriptions and references."""

COMPILED = (".cupy/kernel_cache", "cache/gpubench/cubin")  # subfolders that keep compiled kernels

COMPILED_IN = "GPUBENCH_COMPILED_IN"
"""Variable with the folder from which a process that runs users' kernels copies `COMPILED`."""

NOWHERE = Path(os.devnull, "gpubench")
"""Path of the cache if there is no cache. No file or folder can be made there."""

Value = TypeVar("Value")


def user_cache(*names: str) -> Path:
    """Return a path in the user's cache, even if no file or folder has this path."""
    try:
        folder = Path(platformdirs.user_cache_dir("gpubench"))
    except RuntimeError:  # the user has no home directory
        folder = Path()
    return Path(folder if folder.is_absolute() else NOWHERE, *names)


def cache_file(kind: str, *facts: object) -> Path:
    """Return the path of the cache's file that belongs to these facts.

    The file's name depends on all of the facts.
    """
    return user_cache(kind, hashlib.sha256(repr(facts).encode()).hexdigest())


def keep(path: Path, content: bytes) -> bool:
    """Write a file of the cache, and return whether the file has this content.

    Another process may write the same file at the same time.
    """
    try:
        _make_private(path.parent)
        Output(path, overwrite=True).write(content)
    except (OSError, UsageError):
        with suppress(OSError), open_regular(path) as file:
            return file.read() == content
        return False
    return True


def keep_value(path: Path, value: object) -> bool:
    """Write a value into a file of the cache, and return whether the file was written.

    `kept` reads the file.
    """
    content = msgspec.msgpack.encode(value)
    return keep(path, hashlib.sha256(content).digest() + content)


def kept(path: Path, kind: type[Value]) -> Value | None:
    """Return the value that `keep_value` wrote, or None if there is no intact file."""
    try:
        with open_regular(path) as file:
            digest, content = file.read(hashlib.sha256().digest_size), file.read()
        if hashlib.sha256(content).digest() != digest:
            return None
        return msgspec.msgpack.decode(content, type=kind)
    except (OSError, msgspec.MsgspecError):
        return None


def made_once(path: Path, kind: type[Value], make: Callable[[], Value]) -> Value:
    """Return the value from the cache.

    If the cache has no intact file, make the value and store it.
    """
    value = kept(path, kind)
    if value is None:
        value = make()
        keep_value(path, value)
    return value


def environment_with_caches() -> tuple[dict[str, str], str]:
    """Return the environment variables of child processes, and a notice.

    The variables include the folders of the compilers' caches.

    If the cache cannot be written, a private directory replaces it until this process ends, and the
    notice reports this. Otherwise the notice is empty.
    """
    directory = user_cache()
    why = _why_unusable(directory)
    if why is None:
        # Entries in the folder `numba` have the module names of earlier versions.
        return {"NUMBA_CACHE_DIR": str(directory / "numba-2"), **os.environ}, ""
    notice = f"kernels are compiled only for this run, because {directory} cannot be used: {why}"
    try:
        directory = _temporary_until_exit(directory)
    except OSError as error:
        return {
            **os.environ
        }, f"{notice}; a temporary directory cannot be used either: {error.strerror}"
    compiler_caches = {
        name: str(directory / name) for name in ("NUMBA_CACHE_DIR", "CUPY_CACHE_DIR")
    }
    return compiler_caches | {**os.environ, "XDG_CACHE_HOME": str(directory)}, notice


def environment_of_foreign(kernels: Path, part: str) -> tuple[dict[str, str], Path]:
    """Return the environment and the folder of a process that runs a user's kernels.

    Compilers store their files for the kernels in the folder, and the process can write only there.
    `part` is the folder's path in the whole folder for these kernels: `DESCRIPTIONS`, or a result
    of `part_of`. The whole folder is in the user's cache, unless the kernels are in a temporary
    folder themselves, or the cache cannot be used. If the folder cannot be made, the process can
    write nowhere.
    """
    whole = _folder_for(kernels.resolve())
    folder = whole / part
    with suppress(OSError):
        _make_private(folder)
    if Path(os.path.realpath(folder)) != Path(os.path.realpath(whole), part):
        folder = NOWHERE  # a link, which a function may have written on a system without Landlock
    source = folder_of(user_cache(OWN).resolve()) if part == SHARED else whole
    return few_variables(os.environ, folder) | {COMPILED_IN: str(source / SHARED)}, folder


def part_of(function: str) -> str:
    """Return the part of the folder for foreign code in which processes of a function write.

    If `function` is empty, this is the part of processes that run no user's function.
    """
    return f"{USERS}/{function}" if function else SHARED


def copy_compiled() -> None:
    """Copy compiled kernels into the folder of this process, which need not compile them again.

    This process copies the files itself, because it can write only into its folder. The folder may
    have links of foreign code, by which another process would write elsewhere.
    """
    source = os.environ.pop(COMPILED_IN, "")
    for kept_by in COMPILED if source else ():
        with suppress(OSError):  # includes shutil.Error
            target = Path.home() / kept_by
            shutil.copytree(
                Path(source, kept_by), target, dirs_exist_ok=True, copy_function=_copy_if_missing
            )


def _copy_if_missing(source: str, target: str) -> None:
    if not os.path.lexists(target):
        shutil.copyfile(source, target)


def folder_of(kernels: Path) -> Path:
    """Return the folder in which processes that run the kernels in `kernels` store their files."""
    # The folder `foreign` has files that functions wrote by the rules of earlier versions.
    return user_cache("foreign-2", hashlib.sha256(bytes(kernels)).hexdigest()[:16])


def _folder_for(kernels: Path) -> Path:
    """Return the whole folder for foreign code, which stays the same until this process ends.

    Otherwise a function that fills the disk could change the folder of later processes. If no
    folder can be made, return a path below which no file can be made.
    """
    preferred = folder_of(kernels)
    if preferred not in _folders:
        folder = preferred
        try:
            if kernels.is_relative_to(_temporary_folder()) or _why_unusable(folder):
                folder = _temporary_until_exit(preferred)
        except OSError:
            folder = NOWHERE
        _folders[preferred] = folder
    return _folders[preferred]


_folders: dict[Path, Path] = {}  # folders for foreign code, by the preferred folders (`folder_of`)


@cache
def _temporary_until_exit(_preferred: Path) -> Path:
    """Make a temporary folder that replaces a folder until this process ends."""
    return temporary_until_exit()


def _temporary_folder() -> Path:
    """Return the system's folder for temporary files.

    If another gpubench started this process, this process has a temporary folder of its own. The
    function then returns the parent of this folder.
    """
    folder = Path(tempfile.gettempdir()).resolve()
    return folder.parent if folder.name.startswith(TEMPORARY) else folder


def _why_unusable(directory: Path) -> str | None:
    if directory.is_relative_to(NOWHERE):
        return "there is no home directory"
    try:
        _make_private(directory)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return error.strerror
    return None


def _make_private(directory: Path) -> None:
    """Make a directory and its missing parents. Only the user can access the new directories."""
    if not directory.is_dir():
        _make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
