"""Kill sweeps on the CPU at random moments (`kill -9`), resume them, and check their files.

    python benchmarks/kill_resume.py [kills] [seed]

Each sweep is killed at a moment drawn uniformly from the time that an uninterrupted one takes, then
resumed; one resumed sweep in three is killed again, and so on. For each sweep this checks that

- the child that measures ends with its parent;
- the final file has every point of the uninterrupted sweep, in its order, none twice;
- each round that was on disk at a kill is in the final row, unchanged, and the row has no more
  rounds than were asked for: nothing is lost, nothing measured twice;
- the columns, and which of their fields are empty, are those of the uninterrupted file;
- the directory holds that file and nothing else.

Prints a summary; exits 1 at the first sweep that fails a check. Takes a few minutes.
"""

from __future__ import annotations

import csv
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from gpubench.row import read

KILLS = 50
SEED = 2006
ROUNDS = 8
KILLED_AGAIN = 1 / 3
"""Probability that a resumed sweep is killed too."""

SWEEP = (
    *("--device", "cpu", "--sizes", "8..64:8", "--variants", "cpu_tile,cpu_blas"),
    *("--tiles", "4,8", "--rounds", str(ROUNDS), "--cache", "hot"),
    *("--budget", "16", "--output", "a.csv"),
)
CHILD_ENDS_WITHIN_S = 5.0


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gpubench", "sweep", *arguments],
        cwd=directory,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str]) -> None:
    _, err = process.communicate()
    require(process.returncode == 0, f"a sweep ended with {process.returncode}: {err}")


def kill(process: subprocess.Popen[str], after_s: float) -> bool:
    """Whether it was still running; afterwards neither it nor a child of it is."""
    try:
        process.wait(timeout=after_s)
    except subprocess.TimeoutExpired:
        children = children_of(process.pid)
        process.kill()
        process.communicate()
        deadline = time.monotonic() + CHILD_ENDS_WITHIN_S
        while any(is_alive(child) for child in children):
            require(time.monotonic() < deadline, f"children {children} outlived their parent")
            time.sleep(0.01)
        return True
    finish(process)
    return False


def children_of(pid: int) -> list[int]:
    try:
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}  # a zombie is dead


def whole_lines(path: Path) -> bytes:
    """The complete lines of a file: the sweep's context, then a measurement each."""
    text = path.read_bytes() if path.exists() else b""
    return text[: text.rfind(b"\n") + 1]


def medians_of(lines: bytes) -> dict[tuple[str, ...], list[str]]:
    """The round medians of each point in the lines, as the CSV has them."""
    medians: dict[tuple[str, ...], list[str]] = {}
    for line in map(json.loads, lines.splitlines()[1:]):
        median_us = statistics.median(line["measurement"]["series"]["times_us"])
        medians.setdefault(tuple(map(str, line["key"])), []).append(repr(median_us))
    return medians


def empty_fields(path: Path) -> list[list[bool]]:
    """Which fields of a file are empty."""
    with path.open(newline="") as file:
        return [[cell == "" for cell in line] for line in csv.reader(file)]


def header_of(path: Path) -> str:
    return path.read_text().partition("\n")[0]


def require(condition: bool, message: str) -> None:
    if not condition:
        sys.exit(f"FAILED: {message}")


def check(directory: Path, whole: Path, kept: list[bytes], where: str) -> None:
    names = sorted(path.name for path in directory.iterdir())
    require(names == ["a.csv"], f"{where}: the directory holds {names}")
    final, reference = read(directory / "a.csv"), read(whole)
    require(
        [row.key for row in final] == [row.key for row in reference],
        f"{where}: the points are not those of the uninterrupted sweep",
    )
    require(all(row.rounds == ROUNDS for row in final), f"{where}: rounds")
    rounds = {tuple(map(str, row.key)): (row.round_medians_us or "").split(";") for row in final}
    for lines in kept:
        for key, medians in medians_of(lines).items():
            require(rounds[key][: len(medians)] == medians, f"{where}: {key} was measured again")
    require(header_of(directory / "a.csv") == header_of(whole), f"{where}: columns")
    require(empty_fields(directory / "a.csv") == empty_fields(whole), f"{where}: empty fields")


def main(kills: int, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 # moments, not secrets
    seen: Counter[str] = Counter()
    on_disk: list[int] = []
    with tempfile.TemporaryDirectory() as temporary:
        uninterrupted = Path(temporary, "uninterrupted")
        for _ in range(2):  # the first one compiles
            uninterrupted.mkdir(exist_ok=True)
            start_s = time.monotonic()
            finish(start(uninterrupted, *SWEEP, "--force"))
            duration_s = time.monotonic() - start_s
        whole = uninterrupted / "a.csv"
        points = len(read(whole))
        while seen["kills"] < kills:
            directory = Path(temporary, f"sweep-{seen['sweeps']}")
            directory.mkdir()
            kept: list[bytes] = []
            process = start(directory, *SWEEP)
            while True:
                if kept and chance.random() >= KILLED_AGAIN:
                    finish(process)
                    break
                moment = chance.uniform(0, duration_s)
                if not kill(process, moment):
                    seen["ended before the kill"] += 1
                    break
                kept.append(whole_lines(directory / "a.csv.partial"))
                seen["kills"] += 1
                on_disk.append(max(0, kept[-1].count(b"\n") - 1))
                if len(kept) > 1:
                    seen["kills of a resumed sweep"] += 1
                if (directory / "a.csv.partial").exists():
                    process = start(directory, "--resume", "a.csv")
                elif (directory / "a.csv").exists():
                    seen["kills after the file was complete"] += 1
                    break
                else:
                    seen["kills before the file was started"] += 1
                    process = start(directory, *SWEEP)
            check(directory, whole, kept, f"sweep {seen['sweeps']}, kills at {moment:.3f} s")
            seen["sweeps"] += 1
    print(f"gpubench sweep {' '.join(SWEEP)}")
    print(
        f"{points} points in {ROUNDS} rounds; an uninterrupted sweep takes {duration_s:.1f} s; "
        f"seed {seed}"
    )
    for what, count in seen.items():
        print(f"{count:4}  {what}")
    print(f"measurements on disk at the kill: {', '.join(map(str, sorted(on_disk)))}")
    print("every file complete: no row twice, none lost, none measured again; columns as expected")
    print("no child outlived its parent")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:] or (KILLS,)), *(() if sys.argv[2:] else (SEED,)))
