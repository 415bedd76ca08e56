"""Results that are kept by name: a directory for each device, a file for each time they were saved.

`<store>/<device>/<name>/<utc time>.csv`. The store is `$GPUBENCH_STORE`, or a directory of the
user's data. Nothing in it is ever overwritten: the newest file of a name is what `diff --against`
compares with, and all of them are what `gpubench history` shows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import platformdirs

from gpubench.errors import UsageError
from gpubench.results.output import Output, make_directory
from gpubench.results.row import Row, encode, read

VARIABLE = "GPUBENCH_STORE"

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)

_BUILD = ("source_hash", "tree_hash", "driver", "cuda")
"""Columns that are equal in results of one build on one machine."""


def directory() -> Path:
    """Where results are kept; it need not exist."""
    return Path(os.environ.get(VARIABLE) or platformdirs.user_data_path("gpubench") / "results")


def slug(text: str, longest: int = 40) -> str:
    """A device's name as a file's: `NVIDIA H200` is `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:longest]


def checked(name: str, flag: str) -> str:
    """The name. Raises UsageError if it is none, for it becomes a directory's."""
    if _NAME.fullmatch(name):
        return name
    raise UsageError(
        f"{flag}: '{name}' is not a name: letters, digits, '.', '_' and '-', at most 64"
    )


def save(rows: Sequence[Row], name: str, flag: str = "--save") -> Path:
    """Keep rows of one device under a name; the file. Raises UsageError if that fails."""
    return keep(rows[0].device or "", checked(name, flag), ".csv", encode(rows), flag)


def keep(device: str, name: str, suffix: str, content: bytes, flag: str = "--save") -> Path:
    """Write a new file of a device under a name, and return it. Raises UsageError if it fails."""
    folder = directory() / (slug(device) or "unknown") / name
    make_directory(folder, flag)
    path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}{suffix}"
    Output(path, flag=flag).write(content)
    return path


def saved(name: str, device: str | None = None, suffix: str = ".csv") -> list[Path]:
    """Return the files of a name, oldest first: those of one device, or of all devices."""
    of_device = slug(device) if device else "*"
    return sorted(directory().glob(f"{of_device}/{name}/*{suffix}"), key=lambda path: path.name)


def names(device: str | None = None) -> list[str]:
    """The names that results of a device, or of any, are kept under."""
    of_device = slug(device) if device else "*"
    return sorted({path.parent.name for path in directory().glob(f"{of_device}/*/*.csv")})


def require(name: str, device: str | None, flag: str) -> list[Path]:
    """As `saved`. Raises UsageError, saying what there is, if that is nothing."""
    if found := saved(checked(name, flag), device):
        return found
    there = names(device)
    where = f"for {device}" if device else f"in {directory()}"
    held = f"there is {', '.join(there)}" if there else "no name has anything"
    raise UsageError(
        f"{flag}: nothing is saved as '{name}' {where} ({held}); "
        f"'gpubench sweep --save {name}' saves"
    )


def newest_build(paths: Sequence[Path]) -> list[Path]:
    """The newest of the files and those just before it of the same build: one side of `diff`."""
    builds = []
    for path in reversed(paths):
        rows = read(path, _BUILD)
        builds.append({(row.variant, *(getattr(row, column) for column in _BUILD)) for row in rows})
        if builds[-1] != builds[0]:
            break
    else:
        return list(paths)
    return list(paths[len(paths) - len(builds) + 1 :])
