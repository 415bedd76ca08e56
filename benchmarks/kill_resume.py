"""Kill sweeps at random moments (`kill -9`), resume them, and check their files.

    python benchmarks/kill_resume.py [--kills 15] [--seeds 1,2] [--device cuda] [-o kills.json]

Each kill hits the sweep, the child that measures, or both, at a moment drawn uniformly from the
time that an uninterrupted sweep takes. A sweep that ended is resumed; one resumed sweep in three is
killed again, and so on. For each sweep this checks that

- a killed sweep takes its child along, with all processes that the child started;
- a sweep whose child was killed continues, or ends with one line;
- the final file has every point of the uninterrupted sweep, in the same order, none twice;
- each round that was on disk at a kill is in the final row, unchanged, and the row has no more
  rounds than requested: nothing is lost, and nothing is measured twice;
- the columns, and which of their fields are empty, equal those of the uninterrupted file, except
  for the reason, which may say that a child was killed;
- the directory holds that file and nothing else.

Exits 1 at the first sweep that fails a check. Needs psutil (extra `fleet`).
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

from gpubench.results.row import NAMES, read

ROUNDS = 3
KILLED_AGAIN = 1 / 3
"""Probability that a resumed sweep is killed too."""

VARIANTS = {"cpu": "cpu_tile,cpu_blas", "cuda": "shared_tile,naive"}
SWEEP = (
    *("--sizes", "8..32:8", "--tiles", "4,8", "--rounds", str(ROUNDS), "--cache", "hot"),
    *("--budget", "4", "--output", "a.csv"),
)
ENDS_WITHIN_S = 10.0
LOST = "gpubench: the measuring process crashed: Killed (signal 9)"


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    command = (*GPUBENCH, "sweep", *arguments)
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
        median_us = statistics.median(line["measurement"]["series"]["times_us"])
        medians.setdefault(tuple(map(str, line["key"])), []).append(repr(median_us))
    return medians


def form(path: Path) -> list[list[str] | list[bool]]:
    """Return the columns of a file, and which fields are empty, except for the reason."""
    reason = NAMES.index("reason")
    with path.open(newline="") as file:
        names, *lines = csv.reader(file)
    return [names, *([x == "" for at, x in enumerate(line) if at != reason] for line in lines)]


def require(condition: bool, message: str) -> None:
    if not condition:
        sys.exit(f"FAILED: {message}")


def check(directory: Path, whole: Path, kept: list[bytes], where: str) -> None:
    names = sorted(path.name for path in directory.iterdir())
    require(names == ["a.csv"], f"{where}: the directory holds {names}")
    final = read(directory / "a.csv")
    same = [row.key for row in final] == [row.key for row in read(whole)]
    require(same, f"{where}: the points are not those of the uninterrupted sweep")
    require(all(row.rounds == ROUNDS for row in final), f"{where}: rounds")
    rounds = {tuple(map(str, row.key)): (row.round_medians_us or "").split(";") for row in final}
    for lines in kept:
        for key, medians in medians_of(lines).items():
            require(rounds[key][: len(medians)] == medians, f"{where}: {key} was measured again")
    require(form(directory / "a.csv") == form(whole), f"{where}: columns or empty fields")


def run(kills: int, seed: int, device: str) -> dict[str, Any]:
    """Kill and resume sweeps until `kills` kills hit; return what happened how often."""
    chance = random.Random(seed)  # noqa: S311 # moments, not secrets
    sweep = ("--device", device, "--variants", VARIANTS[device], *SWEEP)
    counts: Counter[str] = Counter()
    on_disk: list[int] = []
    with tempfile.TemporaryDirectory() as temporary:
        uninterrupted = Path(temporary, "uninterrupted")
        uninterrupted.mkdir()
        for _ in range(2):  # the first one compiles
            start_s = time.monotonic()
            finish(start(uninterrupted, *sweep, "--force"))
            duration_s = time.monotonic() - start_s
        whole = uninterrupted / "a.csv"
        killed = sweeps = 0
        while killed < kills:
            directory = Path(temporary, f"sweep-{sweeps}")
            directory.mkdir()
            kept: list[bytes] = []
            process = start(directory, *sweep)
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
                    process = start(directory, "--resume", "a.csv")
                elif (directory / "a.csv").exists():
                    counts["of these, after the file was complete"] += 1
                    break
                else:
                    counts["of these, before the file was started"] += 1
                    process = start(directory, *sweep)
            else:
                finish(process)
            check(directory, whole, kept, f"sweep {sweeps}, {what} at {moment:.3f} s")
            sweeps += 1
    print(f"seed {seed}: {killed} kills in {sweeps} sweeps, every file complete", flush=True)
    return {
        "command": f"gpubench sweep {' '.join(sweep)}",
        "seed": seed,
        "uninterrupted_s": round(duration_s, 1),
        "kills": killed,
        "sweeps": sweeps,
        "counts": dict(sorted(counts.items())),
        "measurements_on_disk": sorted(on_disk),
    }


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
