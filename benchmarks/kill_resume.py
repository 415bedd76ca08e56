"""Kill sweeps and races at random moments (`kill -9`), resume them, and check their files.

    python benchmarks/kill_resume.py [--kills 15] [--seeds 1,2] [--device cuda] [-o kills.json]

Each kill hits the command, the child that measures, or both, at a moment drawn uniformly from the
time that an uninterrupted command takes. A command that ended is resumed; one resumed command in
three is killed again, and so on. Every third seed runs `tune` instead of `sweep --samples`. For
each command this checks that

- a killed command takes its child along, with all processes that the child started;
- a command whose child was killed continues, or ends with one line;
- each round that was on disk at a kill is in the final row, unchanged: nothing is lost, and nothing
  is measured twice;
- the directory holds the files that were asked for and nothing else;
- of a sweep, the final file has every point of the uninterrupted sweep, in the same order, none
  twice, with the requested rounds; the columns, and which of their fields are empty, equal those of
  the uninterrupted file, except for the reason, which may say that a child was killed; and the
  file of samples begins with the lines that were on disk, and has a line for each point and round;
- of a race, the file of winners has a winner, and what it had before, with its comment.

Exits 1 at the first command that fails a check. Needs psutil (extra `fleet`).
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from shared import GPUBENCH, save

from gpubench.plan.tuned import read_winners
from gpubench.results.row import read

ROUNDS = 3
KILLED_AGAIN = 1 / 3
"""Probability that a resumed sweep is killed too."""

VARIANTS = {"cpu": "cpu_tile,cpu_blas", "cuda": "shared_tile,naive"}
SWEEP = (
    *("--sizes", "8..32:8", "--tiles", "4,8", "--rounds", str(ROUNDS), "--cache", "hot"),
    *("--budget", "4", "--output", "a.csv", "--samples", "a.samples"),
)
RACED = {"cpu": "cpu_tile", "cuda": "shared_tile"}
RACE = (
    *("--sizes", "48", "--where", "edge in (4, 16, 32)", "--rounds", "2", "--cache", "hot"),
    *("--within", "20%", "--output", "a.csv"),
)
WINNERS = "winners.toml"
RACE_EVERY = 3
"""The seeds that are multiples of this number run `tune`."""

OLDER = """# measured by hand
[[winner]]
device = "another"
op = "gemm"
variant = "cpu_tile"
dtype = "float32"
m = 8
n = 8
k = 8
tile = "8"
simplest = "8"
group = 1
configurations = 2
within = 0.01
median_us = 1.0
source_hash = "0123456789ab"
gpubench = "0.1.0"
tuned_utc = "2026-01-01T00:00:00+00:00"
"""
ENDS_WITHIN_S = 10.0
LOST = "gpubench: the measuring process crashed: Killed (signal 9)"


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    command = (*GPUBENCH, *arguments)
    out, err = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.Popen(command, cwd=directory, text=True, stdout=out, stderr=err)


def finish(process: subprocess.Popen[str]) -> None:
    _, err = process.communicate()
    require(process.returncode == 0, f"a sweep ended with {process.returncode}: {err}")


def kill(process: subprocess.Popen[str], after_s: float, victim: str) -> str:
    """Kill after a time; return what was killed and what the sweep did then."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=after_s)
        finish(process)
        return "ended before the kill"
    sweep = psutil.Process(process.pid)
    children, ours = sweep.children(), sweep.children(recursive=True)
    for target in {"sweep": [sweep], "child": children, "both": [sweep, *children]}[victim]:
        with suppress(psutil.NoSuchProcess):
            target.kill()
    _, err = process.communicate()
    require("Traceback" not in err, err)
    _, left = psutil.wait_procs(ours, timeout=ENDS_WITHIN_S)
    left = [it for it in left if it.is_running() and it.status() != psutil.STATUS_ZOMBIE]
    require(not left, f"{left} outlived their parents")
    if process.returncode == -signal.SIGKILL:
        return f"kills of the {'sweep' if victim == 'sweep' else 'sweep and its child'}"
    if process.returncode == 0:
        return "kills of the child, and the sweep went on" if children else "no child to kill"
    last = err.splitlines()[-1]
    require((process.returncode, last) == (2, LOST), f"{process.returncode}: {err}")
    return "kills of the child, and the sweep ended in a line"


def whole_lines(path: Path) -> bytes:
    """Return the complete lines of a file: the context of the sweep, then one measurement each."""
    text = path.read_bytes() if path.exists() else b""
    return text[: text.rfind(b"\n") + 1]


def medians_of(lines: bytes) -> dict[tuple[str, ...], list[str]]:
    """Return the round medians of each point in the lines, written as in the CSV."""
    medians: dict[tuple[str, ...], list[str]] = {}
    for line in map(json.loads, lines.splitlines()[1:]):
        if series := line["measurement"]["series"]:  # a race also says what it lets go
            median_us = statistics.median(series["times_us"])
            medians.setdefault(tuple(map(str, line["key"])), []).append(repr(median_us))
    return medians


def form(path: Path) -> list[str]:
    """Return the columns of a file and, for each line, those that are empty; except the reason."""
    with path.open(newline="") as file:
        names, *lines = csv.reader(file)
    empty = (
        " ".join(
            name for name, text in zip(names, line, strict=True) if not text and name != "reason"
        )
        for line in lines
    )
    return [" ".join(names), *empty]


def require(condition: bool, message: str) -> None:
    if not condition:
        sys.exit(f"FAILED: {message}")


def check_rounds(directory: Path, kept: list[bytes], where: str) -> None:
    """Require that all rounds that were on disk at a kill are in the final file, unchanged."""
    rounds = {
        tuple(map(str, row.key)): (row.round_medians_us or "").split(";")
        for row in read(directory / "a.csv")
    }
    for lines in kept:
        for key, medians in medians_of(lines).items():
            require(rounds[key][: len(medians)] == medians, f"{where}: {key} was measured again")


def check_sweep(directory: Path, whole: Path, kept: list[bytes], where: str) -> None:
    names = sorted(path.name for path in directory.iterdir())
    require(names == ["a.csv", "a.samples"], f"{where}: the directory holds {names}")
    final = read(directory / "a.csv")
    same = [row.key for row in final] == [row.key for row in read(whole / "a.csv")]
    require(same, f"{where}: the points are not those of the uninterrupted sweep")
    require(all(row.rounds == ROUNDS for row in final), f"{where}: rounds")
    check_rounds(directory, kept, where)
    for now, then in zip(form(directory / "a.csv"), form(whole / "a.csv"), strict=True):
        differing = sorted({*now.split()} ^ {*then.split()})
        require(not differing, f"{where}: columns that one of the files lacks: {differing}")
    samples = (directory / "a.samples").read_bytes()
    begun = [lines for lines in kept if lines]
    require(all(map(samples.startswith, begun)), f"{where}: samples were lost")
    require(samples.count(b"\n") == 1 + ROUNDS * len(final), f"{where}: lines of samples")


def check_race(directory: Path, whole: Path, kept: list[bytes], where: str) -> None:
    names = sorted(path.name for path in directory.iterdir())
    there = ["a.confirmed.csv", "a.csv", WINNERS]
    require(names == there, f"{where}: the directory holds {names}")
    keys, expected = ({row.key for row in read(at / "a.csv")} for at in (directory, whole))
    require(keys == expected, f"{where}: the configurations are not those of the whole race")
    check_rounds(directory, kept, where)
    text = (directory / WINNERS).read_text(encoding="utf-8")
    require("# measured by hand" in text, f"{where}: a comment of the winners was lost")
    older, *new = (winner.device for winner in read_winners(directory / WINNERS))
    require(older == "another" and len(new) == 1, f"{where}: winners of {older}, {new}")


def run(kills: int, seed: int, device: str) -> dict[str, Any]:
    """Kill and resume commands until `kills` kills hit; return what happened how often."""
    chance = random.Random(seed)  # noqa: S311 # moments, not secrets
    races = seed % RACE_EVERY == 0
    more = ("--winners", WINNERS) if races else ()
    command: tuple[str, ...] = ("sweep", "--device", device, "--variants", VARIANTS[device], *SWEEP)
    if races:
        command = ("tune", RACED[device], "--device", device, *RACE, *more)
    counts: Counter[str] = Counter()
    on_disk: list[int] = []
    with tempfile.TemporaryDirectory() as temporary:
        whole = directory_of(Path(temporary, "uninterrupted"), races)
        for _ in range(2):  # the first one compiles
            start_s = time.monotonic()
            finish(start(whole, *command, "--force"))
            duration_s = time.monotonic() - start_s
        killed = sweeps = 0
        while killed < kills:
            directory = directory_of(Path(temporary, f"sweep-{sweeps}"), races)
            kept: list[bytes] = []
            process = start(directory, *command)
            while not kept or chance.random() < KILLED_AGAIN:
                moment = chance.uniform(0, duration_s)
                what = kill(process, moment, chance.choice(("sweep", "child", "both")))
                counts[what] += 1
                killed += "kills" in what
                kept.append(whole_lines(directory / "a.csv.partial"))
                if process.returncode == 0:
                    break
                on_disk.append(max(0, kept[-1].count(b"\n") - 1))
                counts["of these, of a resumed sweep"] += len(kept) > 1
                if (directory / "a.csv.partial").exists():
                    counts["of these, while the winner was confirmed"] += bool(
                        list(directory.glob("a.confirmed.csv*"))
                    )
                    process = start(directory, command[0], "--resume", "a.csv", *more)
                elif (directory / "a.csv").exists():
                    counts["of these, after the file was complete"] += 1
                    break
                else:
                    counts["of these, before the file was started"] += 1
                    process = start(directory, *command)
            else:
                finish(process)
            check = check_race if races else check_sweep
            check(directory, whole, kept, f"sweep {sweeps}, {what} at {moment:.3f} s")
            sweeps += 1
    print(f"seed {seed}: {killed} kills in {sweeps} sweeps, every file complete", flush=True)
    return {
        "command": f"gpubench {' '.join(command)}",
        "seed": seed,
        "uninterrupted_s": round(duration_s, 1),
        "kills": killed,
        "sweeps": sweeps,
        "counts": dict(sorted((+counts).items())),
        "measurements_on_disk": sorted(on_disk),
    }


def directory_of(path: Path, races: bool) -> Path:
    """Make the directory of a command; that of a race has a file of winners."""
    path.mkdir()
    if races:
        (path / WINNERS).write_text(OLDER, encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=15, help="for each seed")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--device", default="cpu", choices=VARIANTS)
    parser.add_argument("-o", "--output", type=Path, default=Path("kills.json"))
    asked = parser.parse_args()
    seeds = map(int, asked.seeds.split(","))
    save(asked.output, [run(asked.kills, seed, asked.device) for seed in seeds])


if __name__ == "__main__":
    main()
