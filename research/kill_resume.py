"""Kill commands at random moments while they write files, run them again, and check the files.

    python research/kill_resume.py [--kills 9] [--seeds 6] [--first 0] [--device cuda]
        [-o kills.json]

Each kill (`kill -9`) hits the command, the child that measures, or both, at a moment drawn
uniformly from the time that an uninterrupted command takes. A seed chooses the command, in the
order of `KINDS`. A killed sweep or race is resumed. One resumed command in three is killed again,
and so on. The script checks for each command that

- the child of a killed command ends too, with all processes that the child started;
- a command whose child was killed continues, or ends with a message of one line;
- each round that was on disk at a kill is in the final row, unchanged: nothing is lost, and nothing
  is measured twice;
- the directory has the requested files and no others;
- the final file of a sweep has every point of the uninterrupted sweep, in the same order, none
  twice, with the requested rounds;
- in this file the same fields are empty as in the file of the uninterrupted sweep, except for the
  reason, which may say that a child was killed;
- the file of samples begins with the lines that were on disk, and has a line for each point and
  round;
- the file of winners of a race has a new winner, and its former content.

`ab` and the commands of `WRITERS` are not resumed. After a kill, each of their files has its former
content or is complete. A file of a sweep of `ab` may also have only some rounds. The same command
then writes the files.

Exits 1 at the first command that fails a check. Needs psutil (extra `fleet`).
"""

import json
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from common import GPUBENCH, ROOT, parser, save

from gpubench.errors import INTERRUPTED
from gpubench.plan.tuned import read_winners
from gpubench.results.provenance import package_version
from gpubench.results.row import Row, read

ROUNDS = 3
KILLED_AGAIN = 1 / 3
"""Probability that a resumed command is killed again."""

VARIANTS = {"cpu": "cpu_tile,cpu_blas", "cuda": "shared_tile,naive"}
SWEEP = (
    "--sizes", "8..32:8", "--tiles", "4,8", "--rounds", str(ROUNDS), "--cache", "hot",
    "--budget", "4", "--output", "a.csv", "--samples", "a.samples",
)  # fmt: skip
RACED = {"cpu": "cpu_tile", "cuda": "shared_tile"}
WINNERS = "winners.toml"
RACE = (
    "--where", "edge in (4, 16)", "--rounds", "2", "--cache", "hot", "--within", "20%",
    "--output", "a.csv", "--winners", WINNERS,
)  # fmt: skip
AB = (
    "ab", "before", "after", "--variants", "mine,cpu_blas", "--sizes", "16", "--pairs", "3",
    "--results", "r", "--output", "d.md", "--format", "markdown", "--strict", "--force",
    "--device", "cpu",
)  # fmt: skip
WRITERS = (
    ("plot", "rows.csv", "-o", "out.svg", "--force"),
    ("report", "rows.csv", "-o", "out.html", "--force"),
    ("show", "rows.csv", "-o", "out.json", "--force"),
    ("diff", "rows.csv", "again.csv", "--format", "json", "--output", "out.json", "--force"),
    ("generate", "out.npz", "--sizes", "300x500", "--force"),
    ("run", "v.npz", "--op", "gemv", "--device", "cpu", "-o", "out.npz", "--force"),
    ("new-kernel", "mine", "--dir", "out", "--force"),
    ("export", "naive", "--tiles", "8", "--sizes", "64", "--arch", "sm_90", "--dir", "out"),
)
"""Commands that write a file or a folder whose name begins with `out`."""

Command = tuple[str, ...]

KINDS = ("sweep", "files", "tune", "list", "ab", "races")
LIST = "name,m,n,k,weight\nfirst,16,24,8,2\nsecond,32,8,16,1\n"
FORMER = "former"
EXAMPLE = ("--device", "cpu", "--sizes", "8,16", "--rounds", "3", "--budget", "3")
MINE = """
import numpy as np
from gpubench.model import CallVariant
build = lambda *_: lambda a, b, c: np.matmul(a, b, out=c)
VARIANT = CallVariant(idea="NumPy", runs_on="cpu", build=build)
"""

OLDER = """[[winner]]
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
VICTIMS = ("sweep", "child", "both", "SIGINT", "SIGTERM", "SIGHUP")
"""The processes to kill, or the signal that ends a command. After a signal, the command keeps its
measurements."""

ENDS_WITHIN_S = 10.0
OURS = re.compile(rf"{re.escape(str(ROOT))}/gpubench/(?!__)")
"""Matches a module of gpubench in a traceback. A SIGINT before the first such module is loaded ends
Python itself."""

LOST = re.compile(r"gpubench: .*crashed: Killed \(signal 9\)")
"""Matches the last line that a sweep or `ab` prints if its child was killed."""


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    command = (*GPUBENCH, *arguments)
    out, err = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.Popen(command, cwd=directory, text=True, stdout=out, stderr=err)


def finish(process: subprocess.Popen[str]) -> None:
    _, err = process.communicate()
    compares = isinstance(process.args, tuple) and {"ab", "diff"} & {*process.args}
    decided = {0, 1, 3} if compares else {0}
    require(process.returncode in decided, f"a command ended with {process.returncode}: {err}")


def kill(process: subprocess.Popen[str], after_s: float, victim: str) -> str:
    """Kill processes after a time. Return a text about the kill and the end of the command."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=after_s)
        finish(process)
        return "ended before the kill"
    sweep = psutil.Process(process.pid)
    children, ours = sweep.children(), sweep.children(recursive=True)
    number = getattr(signal, victim, signal.SIGKILL)
    for target in {"child": children, "both": [sweep, *children]}.get(victim, [sweep]):
        with suppress(psutil.NoSuchProcess):
            target.send_signal(number)
    killed_s = time.monotonic()
    _, err = process.communicate()
    took_s = time.monotonic() - killed_s
    is_starting = err.endswith("KeyboardInterrupt\n") and not OURS.search(err)
    require("Traceback" not in err or is_starting, err)
    _, left = psutil.wait_procs(ours, timeout=ENDS_WITHIN_S)
    left = [it for it in left if it.is_running() and it.status() != psutil.STATUS_ZOMBIE]
    require(not left, f"{left} outlived their parents")
    # A negative code: the signal ended Python itself, while it started or in `-m`.
    if process.returncode in {INTERRUPTED, -number, -signal.SIGINT} - {-signal.SIGKILL}:
        return f"kills by {victim}"
    if process.returncode == -signal.SIGKILL:
        return f"kills of the {'sweep' if victim == 'sweep' else 'sweep and its child'}"
    where = f"{victim} killed after {after_s:.3f} s"
    if process.returncode in {0, 1, 3} and number != signal.SIGKILL:
        require(took_s < ENDS_WITHIN_S / 2, f"{where}: it went on for {took_s:.1f} s")
        return "ended before the kill"
    if process.returncode in {0, 1, 3}:
        return "kills of the child, and the sweep went on" if children else "no child to kill"
    last = next(reversed(err.splitlines()), "")
    said = process.returncode, bool(LOST.fullmatch(last))
    require(said == (2, True), f"{where}: {process.returncode}: {err}")
    return "kills of the child, and the sweep ended in a line"


def whole_lines(path: Path) -> bytes:
    """Return the complete lines of a file.

    The first line has the context, each other line a measurement.
    """
    text = path.read_bytes() if path.exists() else b""
    return text[: text.rfind(b"\n") + 1]


def medians_of(lines: bytes) -> dict[tuple[str, ...], list[str]]:
    """Return the round medians of each point in the lines, in the form of the CSV."""
    medians: dict[tuple[str, ...], list[str]] = {}
    for line in map(json.loads, lines.splitlines()[1:]):
        if series := line["measurement"]["series"]:  # empty if a configuration left the race
            median_us = statistics.median(series["times_us"])
            medians.setdefault(tuple(map(str, line["key"])), []).append(repr(median_us))
    return medians


def empty_fields(row: Row) -> set[str]:
    """Return the columns that are empty in a row, except for the reason and the commit.

    The commit may be missing, because the killed child may be the `git` that prints it.
    """
    empty = {name for name, value in asdict(row).items() if value in {None, ""}}
    return empty - {"reason", "commit"}


def require(condition: bool, message: str) -> None:
    if not condition:
        sys.exit(f"FAILED: {message}")


def check_results(directory: Path, whole: Path, kept: list[bytes], where: str) -> list[Row]:
    """Require the files and points of `whole`, and all rounds of `kept` once. Return the rows."""
    names, expected = (sorted(path.name for path in at.iterdir()) for at in (directory, whole))
    require(names == expected, f"{where}: the directory holds {names}")
    final, uninterrupted = (read(at / "a.csv") for at in (directory, whole))
    rows = {tuple(map(str, row.key)): row for row in final}
    require({row.key for row in uninterrupted} == {row.key for row in final}, f"{where}: points")
    for lines in kept:
        for key, medians in medians_of(lines).items():
            rounds = [*map(repr, rows[key].round_medians_us)]
            require(rounds[: len(medians)] == medians, f"{where}: {key} was measured again")
    return final


def check_sweep(directory: Path, whole: Path, kept: list[bytes], where: str) -> None:
    final, uninterrupted = check_results(directory, whole, kept, where), read(whole / "a.csv")
    require(all(row.rounds == ROUNDS for row in final), f"{where}: rounds")
    for now, then in zip(final, uninterrupted, strict=True):
        differing = {"key"} if now.key != then.key else empty_fields(now) ^ empty_fields(then)
        require(not differing, f"{where}: columns that one of the files lacks: {differing}")
    samples = (directory / "a.samples").read_bytes()
    begun = [lines for lines in kept if lines]
    require(all(map(samples.startswith, begun)), f"{where}: samples were lost")
    require(samples.count(b"\n") == 1 + ROUNDS * len(final), f"{where}: lines of samples")


def check_race(directory: Path, whole: Path, kept: list[bytes], where: str) -> None:
    check_results(directory, whole, kept, where)
    older, *new = (winner.device for winner in read_winners(directory / WINNERS))
    expected_count = len(read_winners(whole / WINNERS)) - 1
    require(older == "another" and len(new) == expected_count, f"{where}: winners {older}, {new}")


def check_files(directory: Path, whole: Path, where: str, *, is_ended: bool) -> None:
    """Require that each file has its former content or is complete.

    At the end, require all files.
    """
    files, expected = (
        {path.relative_to(at): path for path in at.rglob("*") if path.is_file()}
        for at in (directory, whole)
    )
    for name, path in files.items():
        if path.name.startswith(".gpubench-") or path.suffix == ".partial":
            require(not is_ended, f"{where}: {name} is left")
        elif name.parts[0] == "r":
            ended_early = path.with_name(f"{path.name}.partial").exists()  # it has the rows so far
            is_whole = len(read(path)) == len(read(expected[name]))
            require(ended_early or is_whole, f"{where}: {name} lost rows")
        elif name.name != "d.md":
            content = path.read_bytes()
            allowed = {expected[name].read_bytes()} | (set() if is_ended else {FORMER.encode()})
            require(content in allowed, f"{where}: {name} is neither the former file nor complete")
    if is_ended:
        require(files.keys() == expected.keys(), f"{where}: files {sorted(files)}")


def commands_of(kind: str, device: str) -> list[Command]:
    """Return the commands of a kind. Every kind except `files` has one command."""
    on = ("--device", device)
    commands: dict[str, list[Command]] = {
        "sweep": [("sweep", *on, "--variants", VARIANTS[device], *SWEEP)],
        "list": [("sweep", *on, "--variants", VARIANTS[device], *SWEEP, "--sizes", "list.csv")],
        "tune": [("tune", RACED[device], *on, *RACE, "--sizes", "48")],
        "races": [("tune", RACED[device], *on, *RACE, "--sizes", "list.csv")],
        "files": list(WRITERS),
        "ab": [AB],
    }
    return commands[kind]


def template_of(path: Path, kind: str) -> Path:
    """Make the directory that is copied for each command of a kind, and return its path."""
    path.mkdir()
    (path / "list.csv").write_text(LIST)
    if kind in {"tune", "races"}:
        (path / WINNERS).write_text(OLDER, encoding="utf-8")
    if kind in {"files", "ab"}:
        for name in ("before", "after"):
            (path / name).mkdir()
            (path / name / "mine.py").write_text(MINE)
        for name in ("rows.csv", "again.csv"):
            finish(start(path, "sweep", *EXAMPLE, "--output", name))
        finish(start(path, "generate", "v.npz", "--sizes", "30x50"))
    return path


def again(directory: Path, command: Command) -> Command:
    """Return the command to run after a kill.

    The command has `--resume` if a sweep can be continued, and `--force` otherwise.
    """
    if (directory / "a.csv.partial").exists():
        more = ("--winners", WINNERS) if command[0] == "tune" else ()
        return (command[0], "--resume", "a.csv", *more)
    shutil.rmtree(directory / "r", ignore_errors=True)
    return (*command, *(() if "--force" in command else ("--force",)))


def run_once(
    directory: Path, whole: Path, command: Command, duration_s: float, chance: random.Random
) -> Counter[str]:
    """Kill a command, continue it, and perhaps kill it again. Return the number of each outcome."""
    counts: Counter[str] = Counter()
    kept: list[bytes] = []
    process = start(directory, *command)
    while not kept or chance.random() < KILLED_AGAIN:
        moment = chance.uniform(0, duration_s)
        what = kill(process, moment, chance.choice(VICTIMS))
        where = f"{directory.name} of {command[0]}, {what} at {moment:.3f} s"
        counts[what] += 1
        counts["of these, of a run that was killed before"] += bool(kept)
        partial = directory / "a.csv.partial"
        kept.append(whole_lines(partial))
        if "a.csv" not in command:
            check_files(directory, whole, where, is_ended=False)
        elif not partial.exists() and (directory / "a.csv").exists():
            break
        if process.returncode == 0:
            break
        process = start(directory, *again(directory, command))
    else:
        finish(process)
    if "a.csv" in command:
        check = check_race if command[0] == "tune" else check_sweep
        check(directory, whole, kept, where)
    else:
        check_files(directory, whole, where, is_ended=True)
    return counts


def run(kills: int, seed: int, device: str) -> dict[str, Any]:
    """Run the commands of a seed until `kills` kills have hit.

    Return the number of each outcome.
    """
    kind = KINDS[seed % len(KINDS)]
    commands = commands_of(kind, device)
    chance = random.Random(seed)  # noqa: S311 # moments, not secrets
    counts: Counter[str] = Counter()
    killed = runs = 0
    with tempfile.TemporaryDirectory() as temporary:
        template = template_of(Path(temporary, "template"), kind)
        wholes = {}
        for number, command in enumerate(commands):
            whole = Path(shutil.copytree(template, Path(temporary, f"whole-{number}")))
            finish(start(whole, *command))  # compiles the kernels
            start_s = time.monotonic()
            finish(start(whole, *again(whole, command)))
            wholes[command] = whole, time.monotonic() - start_s
        while killed < kills:
            command = chance.choice(commands)
            directory = Path(shutil.copytree(template, Path(temporary, f"run {runs}")))
            for name in command:
                if name.startswith("out."):
                    (directory / name).write_text(FORMER)
            whole, duration_s = wholes[command]
            counts += run_once(directory, whole, command, duration_s, chance)
            killed = sum(count for what, count in counts.items() if what.startswith("kills"))
            runs += 1
    print(f"seed {seed}: {killed} kills in {runs} runs, every file complete", flush=True)
    said = " ".join(commands[0]) if len(commands) == 1 else ", ".join(x[0] for x in commands)
    counted = {"kills": killed, "runs": runs, "counts": dict(sorted(counts.items()))}
    return {"command": said, "seed": seed, **counted}


def main() -> None:
    options = parser(__doc__, "kills.json")
    options.add_argument("--kills", type=int, default=9, help="number of kills for each seed")
    options.add_argument("--seeds", type=int, default=len(KINDS), help="the number of seeds")
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument("--device", default="cpu", choices=VARIANTS)
    asked = options.parse_args()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup or &, children ignore these signals
    signal.signal(signal.SIGINT, signal.default_int_handler)
    package = {"package": package_version()[0]}
    seeds = range(asked.first, asked.first + asked.seeds)
    done: list[dict[str, Any]] = []
    for seed in seeds:
        done.append(package | run(asked.kills, seed, asked.device))
        save(asked.output, done)  # so that a later failed check loses no outcome


if __name__ == "__main__":
    main()
