"""Packs the files of steps, puts them into results/, and says what changed and why it may have."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared import GPUBENCH, child
from steps import STEPS

from gpubench.errors import UsageError
from gpubench.results.row import Row, read

MOST_RESULTS, MOST_ARCHIVE = 20 * 10**6, 16 * 10**6
"""Bytes of results/, and of an archive."""

CONTEXT = ("tree_hash", "source_hash", "device", "driver", "cuda", "cupy", "nvrtc", "library")
"""Columns that may say why a figure changed."""

SHOWN = 6
"""Flagged points that are named."""


Records = dict[str, dict[str, Any]]


def published(results: Path) -> Records:
    """Of each step whose files are in results/: commit, source, machine, exit, utc, wall_s."""
    path = results / "steps.json"
    return json.loads(path.read_text()) if path.exists() else {}


def pack(archive: Path, work: Path) -> None:
    """The files and records of the steps that ended, and all logs."""
    ended = {path.stem for path in work.glob("steps/*.json")}
    names = [f"steps/{name}.json" for name in ended]
    names += [name for step in STEPS if step.name in ended for name in step.files]
    with tarfile.open(archive, "w:gz") as tar:
        for name in (*names, "logs"):
            tar.add(work / name, name)
    if archive.stat().st_size > MOST_ARCHIVE:
        raise UsageError(f"{archive} has over {MOST_ARCHIVE:,} bytes")


def collect(archives: list[Path], results: Path) -> int:
    """Put what archives hold into results/, and say in results/CHANGES.md what changed."""
    for archive in archives:
        with tempfile.TemporaryDirectory() as temporary, tarfile.open(archive) as tar:
            folder = Path(temporary)
            tar.extractall(folder, filter="data")
            known = published(results)
            for step in STEPS:
                path = folder / "steps" / f"{step.name}.json"
                if not path.exists():
                    continue
                facts = json.loads(path.read_text())
                if facts == known.get(step.name):  # collected before
                    continue
                if said := [line for name in step.files for line in changes(name, results, folder)]:
                    title = f"\n## {step.name}, {facts['utc']}, commit {facts['commit']}\n"
                    with (results / "CHANGES.md").open("a") as file:
                        print(title, *said, sep="\n", file=file)
                for name in step.files:
                    (results / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(folder / name, results / name)
                known[step.name] = facts
                print(f"{step.name}: {facts['utc']}, {' '.join(step.files)}")
            text = json.dumps(known, indent=1, sort_keys=True) + "\n"
            (results / "steps.json").write_text(text)
    size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
    if size > MOST_RESULTS:
        raise UsageError(f"results/ has {size:,} bytes, more than {MOST_RESULTS:,}")
    return 0


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
