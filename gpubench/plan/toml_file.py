"""Reads a TOML file, whoever wrote it: its values are of a size that can be worked with."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from gpubench.errors import UsageError

MAX_BYTES = 2**20
"""A configuration is a page or two."""

MAX_DOTS = 200
"""In a line: the time that `tomllib` takes for a key grows with their square."""

MAX_SAID = 200
"""Of what `tomllib` says."""

DEEPEST = 20
"""Tables and lists in each other."""

LARGEST = 2**63 - 1
"""TOML's whole numbers have 64 bits; Python would take longer ones, and then refuse to print them.
"""


def read_toml(path: Path, flag: str = "") -> dict[str, Any]:
    """The file's table. Raises UsageError, which begins with `flag`, for what cannot be used."""
    at = f"{flag}: " if flag else ""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{at}cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{at}{path} has more than {MAX_BYTES:,} bytes")
    try:
        text = content.decode()
        if any(_dots(line) > MAX_DOTS for line in text.splitlines()):
            raise UsageError(f"{at}{path}: a key has more than {MAX_DOTS} parts")
        values = tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(f"{at}{path} is nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"{at}{path} is not TOML: {str(error)[:MAX_SAID]}") from error
    level: list[object] = [values]
    for _ in range(DEEPEST):
        for value in level:
            if isinstance(value, int) and abs(value) > LARGEST:
                raise UsageError(f"{at}{path}: a whole number is beyond 64 bits")
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise UsageError(f"{at}{path} is nested too deeply")
    return values


def _dots(line: str) -> int:
    """Those in front of the value; in a table's heading, all."""
    return line.partition("=")[0].count(".")


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
