"""A sweep on the CPU killed at random moments (`kill -9`), then resumed: nothing lost or doubled.

    python benchmarks/kill_resume.py [kills] [seed]

Each sweep is killed at a moment drawn evenly from the time that an uninterrupted one takes, start
and end included, then resumed; one resumed sweep in three is killed again, and so on. Of every one
it is checked that

- the measuring child is gone with its parent;
- the final file has every point of the uninterrupted sweep, in its order, none twice;
- each round that was on disk when a kill came is in the final row, unchanged, and none is beside it
  that was not asked for: nothing lost, nothing measured twice;
- columns, and which of their fields are empty, are those of the uninterrupted file;
- the folder holds that file and nothing else.

Prints a summary; exits 1 at the first sweep of which one of these is not true. Takes a few minutes.
"""

from __future__ import annotations

import csv
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from gpubench.row import Row, read

KILLS = 50
SEED = 2006
ROUNDS = 8
AGAIN = 1 / 3
"""How likely a resumed sweep is killed, too."""

SWEEP = (
    *("--device", "cpu", "--sizes", "8..64:8", "--variants", "cpu_tile,cpu_blas"),
    *("--tiles", "4,8", "--rounds", str(ROUNDS), "--cache", "hot"),
    *("--budget", "16", "--output", "a.csv"),
)
GONE_WITHIN_S = 5.0


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gpubench", "sweep", *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str]) -> None:
    _, err = process.communicate()
    require(process.returncode == 0, f"a sweep ended with {process.returncode}: {err}")


def kill(process: subprocess.Popen[str], after_s: float) -> bool:
    """Whether it was still running then; neither it nor a child of its is afterwards."""
    try:
        process.wait(timeout=after_s)
    except subprocess.TimeoutExpired:
        children = children_of(process.pid)
        process.kill()
        process.communicate()
        deadline = time.monotonic() + GONE_WITHIN_S
        while any(is_alive(child) for child in children):
            require(time.monotonic() < deadline, f"children {children} outlive their parent")
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
    return state not in {"Z", "X"}  # dead, and not yet waited for


def rounds_of(rows: list[Row]) -> dict[tuple[str | int, ...], list[str]]:
    """The round medians of each point, in order."""
    rounds: dict[tuple[str | int, ...], list[str]] = {}
    for one in rows:
        rounds.setdefault(one.key, []).extend((one.round_medians_us or "").split(";"))
    return rounds


def rows_on_disk(folder: Path) -> list[Row]:
    """The whole lines of the partial file."""
    partial = folder / "a.csv.partial"
    if not partial.exists():
        return []
    copy = folder / "copy"
    text = partial.read_bytes()
    copy.write_bytes(text[: text.rfind(b"\n") + 1])
    try:
        return read(copy)
    finally:
        copy.unlink()


def form_of(path: Path) -> list[list[bool]]:
    """The columns are told by the header; here, which fields are empty."""
    with path.open(newline="") as file:
        return [[cell == "" for cell in line] for line in csv.reader(file)]


def header_of(path: Path) -> str:
    return path.read_text().partition("\n")[0]


def require(truth: bool, otherwise: str) -> None:
    if not truth:
        sys.exit(f"FAILED: {otherwise}")


def check(folder: Path, whole: Path, kept: list[list[Row]], where: str) -> None:
    names = sorted(path.name for path in folder.iterdir())
    require(names == ["a.csv"], f"{where}: the folder holds {names}")
    final, reference = read(folder / "a.csv"), read(whole)
    require(
        [one.key for one in final] == [one.key for one in reference],
        f"{where}: the points are not those of the uninterrupted sweep",
    )
    rounds = rounds_of(final)
    require(all(len(some) == ROUNDS for some in rounds.values()), f"{where}: rounds")
    for rows in kept:
        for key, medians in rounds_of(rows).items():
            require(rounds[key][: len(medians)] == medians, f"{where}: {key} was measured again")
    require(header_of(folder / "a.csv") == header_of(whole), f"{where}: columns")
    require(form_of(folder / "a.csv") == form_of(whole), f"{where}: empty fields")


def main(kills: int, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 # moments, not secrets
    seen: Counter[str] = Counter()
    lines: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        uninterrupted = Path(temporary, "uninterrupted")
        for _ in range(2):  # the first compiles
            uninterrupted.mkdir(exist_ok=True)
            began = time.monotonic()
            finish(start(uninterrupted, *SWEEP, "--force"))
            lasts_s = time.monotonic() - began
        whole = uninterrupted / "a.csv"
        points = len(read(whole))
        while seen["kills"] < kills:
            folder = Path(temporary, f"sweep-{seen['sweeps']}")
            folder.mkdir()
            kept: list[list[Row]] = []
            process = start(folder, *SWEEP)
            while True:
                doomed = not kept or chance.random() < AGAIN
                if not doomed:
                    finish(process)
                    break
                moment = chance.uniform(0, lasts_s)
                if not kill(process, moment):
                    seen["ended before the kill came"] += 1
                    break
                kept.append(rows_on_disk(folder))
                seen["kills"] += 1
                lines[len(kept[-1])] += 1
                if len(kept) > 1:
                    seen["kills of a resumed sweep"] += 1
                if (folder / "a.csv.partial").exists():
                    process = start(folder, "--resume", "a.csv")
                elif (folder / "a.csv").exists():
                    seen["kills after the file was complete"] += 1
                    break
                else:
                    seen["kills before the file was begun"] += 1
                    process = start(folder, *SWEEP)
            check(folder, whole, kept, f"sweep {seen['sweeps']}, kills at {moment:.3f} s")
            seen["sweeps"] += 1
    print(f"gpubench sweep {' '.join(SWEEP)}")
    print(
        f"{points} points in {ROUNDS} rounds; an uninterrupted sweep lasts {lasts_s:.1f} s; "
        f"seed {seed}"
    )
    for what, count in seen.items():
        print(f"{count:4}  {what}")
    counts = sorted(lines.elements())
    print(f"rows on disk when the kill came: {', '.join(map(str, counts))}")
    print("every file complete: no row twice, none lost, none measured again; form as if unkilled")
    print("no child outlived its parent")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:] or (KILLS,)), *(() if sys.argv[2:] else (SEED,)))
