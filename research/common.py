"""Functions that several scripts use for child processes, points, statistics and tables."""

import argparse
import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import IO, Any, TypeVar

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # this tree's package

from gpubench.model import Cache, Config, Point, Problem, Scope, Timer, Variant
from gpubench.plan.registry import choose
from gpubench.results.provenance import source_hash

ROOT = Path(__file__).resolve().parent.parent
CARDS = ("h200", "h100")
"""Names of the folders in results/. Each folder has the files that one GPU measured."""

FOREIGN = ("foreign", "foreign_rest", "foreign_last", "foreign_left", "foreign_end")
"""Tasks that measured other projects' kernels, and their files, in the order of the runs."""

ALONE_DTYPES = ("bfloat16", "float16", "float8_e4m3", "tf32", "int8", "float32", "float64")
ALONE_SEEDS = dict(zip(ALONE_DTYPES, (711, 712, 713, 714, 715, 716, 717), strict=True))
"""Maps a precision to the seed of the random shapes at which launches alone were measured."""

GPUBENCH = (sys.executable, "-m", "gpubench")
SEED = 2006
"""The seed of operands that gpubench uses by default."""


WIDTH = 119
"""Number of characters in a line of prose on a page."""


def parser(doc: str | None, output: str = "") -> argparse.ArgumentParser:
    """Return a parser whose help is `doc`.

    If `output` is not empty, the parser has the option `-o` with this default.
    """
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if output:
        made.add_argument("-o", "--output", type=Path, default=Path(output))
    return made


def measured_file(name: str) -> Path:
    """Return the path of a file that a GPU measured. The file may not exist."""
    paths = [ROOT / "results" / card / name for card in CARDS]
    return next(filter(Path.exists, paths), paths[0])


def measured(column: str) -> dict[str, str]:
    """Return the value of a column of results/measured.csv for each file.

    Files whose script was removed are left out.
    """
    rows = csv_rows(ROOT / "results" / "measured.csv")
    return {file: row[column] for row in rows for file in row["files"].split()}


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV, as texts by column."""
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def hashes_of(kernels: Iterable[Variant]) -> dict[str, str]:
    """Return the hash of the present sources of each kernel, by operation and name.

    Kernels of libraries are left out, because their hash depends on what is installed.
    """
    return {f"{each.op} {each.name}": source_hash(each) for each in kernels if not each.libraries}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The outcome of a child process."""

    code: int | None
    """Exit code. None if the process was killed after its time limit."""

    wall_s: float
    out: str
    """The text that the process printed. Empty if the output went to a file."""

    err: str

    @property
    def last_line(self) -> str:
        """The last line on stderr that is not empty."""
        return next((x.strip() for x in reversed(self.err.splitlines()) if x.strip()), "no message")


def child(
    command: Sequence[object],
    *,
    timeout_s: float | None = None,
    out: IO[str] | int = subprocess.PIPE,
    err: IO[str] | int | None = None,
    cwd: Path | None = None,
    **variables: str,
) -> Ended:
    """Run a command that imports gpubench from this repository.

    After `timeout_s` seconds, or at Ctrl-C, kill the command with all processes that it started.
    """
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    started = perf_counter()
    with subprocess.Popen(
        [str(word) for word in command],
        stdout=out,
        stderr=err,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, **variables},
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        code: int | None
        try:
            said = process.communicate(timeout=timeout_s)
            code = process.returncode
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            said = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            code = None
    return Ended(code=code, wall_s=perf_counter() - started, out=said[0] or "", err=said[1] or "")


def kernel_point(
    variant: Variant,
    tile: Config | None,
    problem: Problem,
    cache: Cache = Cache.HOT,
    timer: Timer = Timer.EVENTS,
) -> Point:
    """Return a point that times launches of the kernel alone, which do not overlap."""
    return Point(
        variant=variant, tile=tile, problem=problem, cache=cache, scope=Scope.KERNEL, timer=timer
    )


def point(variant: str, tile: str, problem: Problem, kernels: Path | None = None) -> Point:
    """Return the point of a CUDA variant with hot operands.

    `kernels` is a folder with further variants. An empty tile means the first default tile.
    """
    (chosen,) = choose(problem.op, "cuda", (variant,), kernels)
    config = None
    if chosen.tiles:
        config = chosen.tiles.read(tile) if tile else chosen.tiles.defaults[0]
    return kernel_point(chosen, config, problem)


T = TypeVar("T")


def read_lines(path: Path, cls: type[T]) -> list[T]:
    """Read a CSV whose columns are fields of a dataclass. Empty fields get their defaults."""
    filled = ({name: text for name, text in line.items() if text} for line in csv_rows(path))
    return [msgspec.convert(line, cls, strict=False) for line in filled]


def table(heading: Sequence[str], lines: Iterable[Sequence[object]], *, text: bool = False) -> str:
    """Return a Markdown table. Columns after the first are aligned right, unless `text`."""
    cells = [[re.sub(r"([|~])", r"\\\1", str(cell)) for cell in line] for line in (heading, *lines)]
    rule = ["---", *("---" if text else "---:" for _ in heading[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (cells[0], rule, *cells[1:]))


def load(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def save(path: Path, content: object) -> None:
    """Write a JSON file. Each item of a list has a line of its own, so that a diff can be read."""
    if isinstance(content, list):
        text = ",\n".join(json.dumps(item, ensure_ascii=False) for item in content)
        text = f"[\n{text}\n]"
    else:
        text = json.dumps(content, ensure_ascii=False, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")


def verdict(holds: bool, what: str) -> bool:
    """Print whether a bound holds, and return `holds`."""
    print(f"{'holds' if holds else 'FAILS'}: {what}", flush=True)
    return holds
