"""What changed between two versions of a file of results, and what may be why."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from shared import GPUBENCH, child

from gpubench.errors import UsageError
from gpubench.row import Row, read

CONTEXT = ("tree_hash", "source_hash", "device", "driver", "cuda", "cupy", "nvrtc", "library")
"""Columns that may say why a figure changed."""

SHOWN = 6
"""Flagged points that are named."""


def changes(name: str, before: Path, after: Path) -> Iterator[str]:
    """Lines about a new file: what may be why it differs, what `diff` says, what is flagged."""
    new, old = rows(after / name), rows(before / name)
    if new is None:
        return
    if old:
        for column in CONTEXT:
            was, now = ({getattr(row, column) or "?" for row in of} for of in (old, new))
            if was != now:
                yield f"- {name}: {column} {short(was)} → {short(now)}"
        said = child((*GPUBENCH, "diff", before / name, after / name), err=subprocess.STDOUT)
        kept = ("slower", "faster", "broken", "missing", "!", "machine")
        text = said.out.replace(f"{before}/", "old ").replace(f"{after}/", "new ")
        lines = text.splitlines() or ["nothing"]
        for line in (lines[0], *(line for line in lines[1:] if line.startswith(kept))):
            yield f"- {name}: `diff` exit {said.code}: {line}"
    elif (before / name).exists():
        yield f"- {name}: the old file has another schema"
    if flagged := [row.label for row in new if row.unstable]:
        more = f" and {len(flagged) - SHOWN} more" if len(flagged) > SHOWN else ""
        yield f"- {name}: rounds disagree, nothing is claimed of {', '.join(flagged[:SHOWN])}{more}"


def short(values: set[str]) -> str:
    """One value, or how many."""
    return values.copy().pop() if len(values) == 1 else f"{len(values)} values"


def rows(path: Path) -> list[Row] | None:
    """The rows of a CSV of gpubench; None if it is something else, or of another schema."""
    if not path.exists() or ".csv" not in path.suffixes:
        return None
    try:
        return read(path)
    except UsageError:
        return None
