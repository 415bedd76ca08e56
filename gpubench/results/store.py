"""Keeps results under names. Each device and name has a directory, with a file for each save.

A file is `<store>/<device>/<name>/<utc time>.csv`. The store is `$GPUBENCH_STORE`, or a directory
in the user's data directory. No file is ever overwritten.
"""

import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import platformdirs

from gpubench.errors import UsageError
from gpubench.files import Output, make_directory
from gpubench.results.row import Row, encode, read

VARIABLE = "GPUBENCH_STORE"

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)

MAX_SWEEPS = 20  # maximum number of saved sweeps that are pooled as one side of `diff`

_BUILD = ("device", "source_hash", "tree_hash", "driver", "cuda")
"""Columns whose values are equal in all results of one build on one machine."""


def directory() -> Path:
    """Return the path of the store's directory. The directory may not exist."""
    return Path(os.environ.get(VARIABLE) or platformdirs.user_data_path("gpubench") / "results")


def slug(text: str) -> str:
    """Convert the name of a device to a part of a path: `NVIDIA H200` becomes `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40]


def _folder(device: str) -> str:
    """Return the name of a device's directory in the store."""
    return slug(device) or "unknown"


def checked(name: str, flag: str) -> str:
    """Return `name`. Raises UsageError if a directory must not have this name."""
    if _NAME.fullmatch(name):
        return name
    raise UsageError(
        f"{flag}: '{name}' is not a valid name: use at most 64 letters, digits, '.', '_' and '-'"
    )


def save(rows: Sequence[Row], name: str, flag: str = "--save") -> Path:
    """Save rows of one device under a name. Return the new file. Raises UsageError."""
    return keep(rows[0].device or "", checked(name, flag), ".csv", encode(rows), flag)


def keep(device: str, name: str, suffix: str, content: bytes, flag: str = "--save") -> Path:
    """Save a file for a device and a name, and return its path. Raises UsageError."""
    folder = directory() / _folder(device) / name
    make_directory(folder, flag)
    path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}{suffix}"
    Output(path, flag=flag).write(content)
    return path


def saved(name: str, device: str | None = None, suffix: str = ".csv") -> list[Path]:
    """Return the files that were saved under a name, by default of all devices, oldest first."""
    of_device = _folder(device) if device else "*"
    paths = directory().glob(f"{of_device}/{name}/*{suffix}")
    return sorted(filter(Path.is_file, paths), key=lambda path: path.name)


def names(device: str | None = None) -> list[str]:
    """Return the names under which results were saved, by default of all devices."""
    of_device = _folder(device) if device else "*"
    return sorted({path.parent.name for path in directory().glob(f"{of_device}/*/*.csv")})


def require(name: str, device: str | None, flag: str) -> list[Path]:
    """Return the files that were saved under a name. Raises UsageError if there are none."""
    if paths := saved(checked(name, flag), device):
        return paths
    where = f"for {device}" if device else f"in {directory()}"
    others = f"; saved names: {', '.join(names(device))}" if names(device) else ""
    raise UsageError(
        f"{flag}: nothing is saved as '{name}' {where}{others}; "
        f"'gpubench sweep --save {name}' saves results"
    )


def newest_build(
    paths: Sequence[Path], check: Callable[[Path], object]
) -> tuple[list[Path], list[str]]:
    """Return the newest files of one build, oldest first, and the reasons for skipping other files.

    The function returns at most `MAX_SWEEPS` files. A file is skipped if it has no row, or if
    `check` raises UsageError for this file. Raises UsageError if all files are skipped.
    """
    newest: list[Path] = []
    unreadable: list[str] = []
    build = None
    for path in reversed(paths):
        try:
            check(path)
            rows = read(path, _BUILD)
        except UsageError as error:
            unreadable.append(str(error))
            continue
        if not rows:
            unreadable.append(f"{path}, which has no row")
            continue
        of_file = {(row.variant, *(getattr(row, column) for column in _BUILD)) for row in rows}
        build = of_file if build is None else build
        if of_file != build or len(newest) == MAX_SWEEPS:
            break
        newest.append(path)
    if not newest:
        raise UsageError(unreadable[-1])
    return newest[::-1], unreadable
