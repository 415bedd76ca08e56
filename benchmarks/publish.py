"""Makes every file of results/ by steps, on machines that need no git, and brings them back.

    python benchmarks/publish.py list
    python benchmarks/publish.py run [STEP ...] --budget 560 --commit C --archive published.tar.gz
    python benchmarks/publish.py collect published.tar.gz ...

`run` makes the files of the named steps, or of all that fit this machine's GPUs and are not done,
in build/published, and packs them into the archive after each step. A step starts only if what it
took last is left of the budget, or half its bound. It is killed at its bound or the budget's end,
and is done once: until the code that it measures with changes. The tree must be committed; where
git does not know it, `--commit` says what it is. On several GPUs one `run` each, with
`CUDA_VISIBLE_DEVICES` and an archive of its own, share the steps; with CPUs of its own too
(`taskset`) also those that need to be alone on the host.

`collect` puts the files of archives into results/, after `gpubench diff` compared each CSV with
the one that it replaces: results/CHANGES.md says what changed and what may be why. Then
`python docs/make_tables.py` and `python docs/make_pictures.py` renew what the pages say.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from archive import Records, collect, pack, published
from shared import GPUBENCH, ROOT, child
from steps import STEPS, Step

from gpubench.errors import UsageError
from gpubench.hardware.host import cpu_threads
from gpubench.results.output import lock

PACKAGE, RESULTS, WORK = ROOT / "gpubench", ROOT / "results", ROOT / "build" / "published"
MEASURES = (
    "backends",
    "hardware",
    "kernels",
    "engine",
    "model",
    "plan",
    "results",
    "stats",
    "options.py",
)
"""Of the package: what any figure depends on."""

DEPENDS = {
    "backends/cuda/nvml.py": "tensor.py",
    "backends/cuda/sustained.py": "tensor.py",
    "engine/cluster.py": "many_gpus.py",
    "engine/result_file.py": "kill_resume.py",
    "engine/shared.py": "many_gpus.py",
}
"""Files of these on which only what one script measures depends."""

FINE = {0, 1, 3}
"""Exit codes of a step that wrote its files: 1 and 3 say that a bound is broken or not judged."""


def source(step: Step) -> str:
    """12 digits that change with the command of a step and the code that it measures with."""
    words = step.command.replace("ROOT", str(ROOT)).split()
    paths = [PACKAGE / name for name in MEASURES]
    commands = {words[words.index("gpubench") + 1]} if "gpubench" in words else set()
    for script in (Path(word) for word in words if word.endswith(".py")):
        text = script.read_text()
        names = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
        paths += [script, *(script.with_name(f"{name}.py") for name in names)]
        commands |= {*re.findall(r"gpubench\.commands\.(\w+)", text)}
    for command in sorted(commands):
        paths.append(PACKAGE / "commands" / command.replace("-", "_"))
    others = {PACKAGE / name for name, script in DEPENDS.items() if script not in step.command}
    digest = hashlib.sha256(step.command.encode())
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts and file not in others:
                digest.update(file.read_bytes())
    for name in step.reads:
        if (file := newest(name)).exists():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def newest(name: str) -> Path:
    """A file of results/, or of `WORK` if it was made or copied there since."""
    there, here = RESULTS / name, WORK / name
    known = [path for path in (here, there) if path.exists()]
    return max(known, key=lambda path: path.stat().st_mtime, default=there)


def records() -> Records:
    """The same, and of steps whose files are in `WORK`."""
    here = {path.stem: json.loads(path.read_text()) for path in WORK.glob("steps/*.json")}
    return published(RESULTS) | here


def is_done(step: Step, known: Records) -> bool:
    """Whether its files are what this code makes."""
    return known.get(step.name, {}).get("source") == source(step)


def committed(given: str | None) -> str:
    """The commit of this tree. Raises UsageError if it is not known, or files differ from it."""

    def git(*words: str) -> str | None:
        done = child(("git", "-C", ROOT, *words), err=subprocess.DEVNULL)
        return done.out.strip() if done.code == 0 else None

    if (commit := git("rev-parse", "--short=12", "HEAD")) is None:
        if given is None:
            raise UsageError("git does not know this tree: say its commit by --commit")
        return given[:12]
    if changed := git("status", "--porcelain", "--", ".", ":!results"):
        raise UsageError(f"commit first, this differs: {' '.join(changed.split())}")
    return commit


def machine() -> tuple[int, bool, str]:
    """The number of visible GPUs; whether steps on other GPUs share its CPUs; what it is."""
    ask = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    names = child(ask).out.splitlines() if shutil.which("nvidia-smi") else []
    if not names:
        return 0, False, f"{os.cpu_count()} CPUs"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(visible.split(",")) if visible else len(names)
    shared = count < len(names) and cpu_threads() == os.cpu_count()
    return count, shared, f"{count} × {names[0]}"


def run(names: list[str], budget_s: float, given: str | None, archive: Path | None) -> int:
    """Run the steps that fit into the budget; 1 if one failed."""
    started, commit, (gpus, beside, described) = monotonic(), committed(given), machine()
    if unknown := set(names) - {step.name for step in STEPS}:
        raise UsageError(f"no such step: {', '.join(sorted(unknown))}")
    failed = False
    (WORK / "steps").mkdir(parents=True, exist_ok=True)
    together: defaultdict[str, list[Step]] = defaultdict(list)
    for step in STEPS:
        if step.name in names or (not names and step.gpus == gpus and not (beside and step.alone)):
            together[step.compared or step.name].append(step)
    for name, steps in together.items():
        with (WORK / "steps" / f"{name}.lock").open("w") as claim:
            if not lock(claim.fileno()):
                continue
            known = records()
            if not names and all(is_done(step, known) for step in steps):
                continue
            for step in steps:
                left_s = budget_s - (monotonic() - started)
                took_s = known.get(step.name, {}).get("wall_s") or step.bound_s / 2
                if why := obstacle(step, gpus, took_s, left_s):
                    print(f"{step.name}: {why}")
                    continue
                facts = {"commit": commit, "machine": described}
                failed |= not attempt(step, min(step.bound_s, left_s), facts)
                if archive:
                    pack(archive, WORK)
    return int(failed)


def attempt(step: Step, limit_s: float, facts: dict[str, Any]) -> bool:
    """Run a step, and record it if it made its files; whether it did."""
    kept = WORK / "steps" / f"{step.name}.json"
    kept.unlink(missing_ok=True)
    code, wall_s = made(step, limit_s)
    print(f"{step.name}: exit {code} after {wall_s:.0f} s", flush=True)
    whole = all(path.exists() and path.stat().st_size for path in map(WORK.joinpath, step.files))
    log = (WORK / "logs" / f"{step.name}.txt").read_text()
    crashed = re.search("^Traceback", log, re.MULTILINE)  # torch logs those of its candidates
    if code not in FINE or not whole or crashed:
        return False
    facts |= {"source": source(step), "exit": code, "wall_s": round(wall_s, 1)}
    facts["utc"] = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    kept.write_text(json.dumps(facts))
    return True


def obstacle(step: Step, gpus: int, took_s: float, left_s: float) -> str:
    """Why a step cannot run now; empty if it can."""
    missing = [name for name in step.reads if not newest(name).exists()]
    if step.gpus > gpus:
        return f"needs {step.gpus} GPUs, {gpus} are here"
    if missing:
        return f"reads {', '.join(missing)}, which no step has made"
    return f"the {took_s:.0f} s that it takes are not left" if took_s > left_s else ""


def made(step: Step, limit_s: float) -> tuple[int | None, float]:
    """Run a step's command in `WORK`; its exit code, None if it was killed, and wall time."""
    packed = [name for name in step.files if name.endswith(".gz")]
    for name in (*step.files, *(name.removesuffix(".gz") for name in packed)):
        for path in (WORK / name, WORK / f"{name}.partial"):
            path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
    for name in step.reads:
        if newest(name) != WORK / name:
            (WORK / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(RESULTS / name, WORK / name)
    cold = WORK / "cold" / step.name
    shutil.rmtree(cold, ignore_errors=True)
    text = step.command.replace("ROOT", str(ROOT)).replace("COLD", str(cold))
    command, both, target = text.partition(" &> ")
    if not both:
        command, _, target = command.partition(" > ")
    programs = {"python": (sys.executable,), "gpubench": GPUBENCH}
    words = [part for word in shlex.split(command) for part in programs.get(word, (word,))]
    log = WORK / "logs" / f"{step.name}.txt"
    log.parent.mkdir(exist_ok=True)
    with (WORK / target if target else Path(os.devnull)).open("w") as out, log.open("w") as err:
        ended = child(words, timeout_s=limit_s, out=out, err=out if both else err, cwd=WORK)
    for path in (WORK / name for name in step.files if name.endswith((".txt", ".md"))):
        if path.exists():  # where the checkout was is nobody's concern
            path.write_bytes(path.read_bytes().replace(f"{ROOT}/".encode(), b""))
    for name in packed:
        plain = WORK / name.removesuffix(".gz")
        if plain.exists():
            (WORK / name).write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
            plain.unlink()
    return ended.code, ended.wall_s


def listed() -> int:
    """Print each step: when it was done, whether the code changed since, its bound."""
    known = records()
    for step in STEPS:
        facts = known.get(step.name)
        state = "never" if facts is None else f"{facts['utc']} {facts['commit']}"
        if facts and not is_done(step, known):
            state += ", stale"
        where = f"{step.gpus} GPU{'s' * (step.gpus > 1)}" if step.gpus else "host"
        where += ", alone" * step.alone
        print(f"{step.name:<26} {where:<13} {step.bound_s:>4} s  {state}")
    return 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("list", help="what is done, and what is stale")
    runs = commands.add_parser("run", help="make files in build/published")
    runs.add_argument("steps", nargs="*", help="default: all that this machine's GPUs are for")
    runs.add_argument("--budget", type=float, default=1e9, help="seconds of wall time")
    runs.add_argument("--commit", help="of this tree, where git does not know it")
    runs.add_argument("--archive", type=Path, help="written after each step")
    collects = commands.add_parser("collect", help="put archives into results/")
    collects.add_argument("archives", nargs="+", type=Path)
    asked = parser.parse_args()
    try:
        if asked.what == "run":
            return run(asked.steps, asked.budget, asked.commit, asked.archive)
        return listed() if asked.what == "list" else collect(asked.archives, RESULTS)
    except (UsageError, OSError, tarfile.TarError) as error:
        sys.stderr.write(f"publish.py: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
