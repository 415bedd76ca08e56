"""A million inputs for everything that reads what a user gives: coverage-guided fuzzing by atheris.

    pip install atheris            # Linux, CPython 3.11 to 3.13
    python benchmarks/fuzz.py [--share 0.01] [reader ...]
    python benchmarks/fuzz.py --plain 100000 [--from 0] [reader ...]      # without atheris

`--plain` tries so many inputs, each made from its own number, on all cores; most are commands.

`tests/fuzz/contract.py` says what must hold, `tests/fuzz/readers.py` what is read; the tests try a
few thousand inputs. Half of the inputs here are libFuzzer's mutations of those that reached new
code, half are made by `tests/fuzz/mutations.py`. Each reader runs in a process of its own with at
most `MAX_BYTES` of address space. Prints inputs, time, inputs per second, edges of the package's
code reached, and the first finding, whose input is kept in `fuzz-findings/`. Exits 1 if there is
a finding.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

RUNS = {
    "sizes": 700_000,
    "tiles": 250_000,
    "config": 20_000,
    "expect": 20_000,
    "operands": 40_000,
    "archive": 8_000,
    "csv": 5_000,
    "experiment": 1_000,
    "diff": 200,
    "command": 300,
    "partial": 200,
}
"""Inputs of each reader, fewer where one takes longer: a million, in twenty minutes of one core."""

PLAIN = {
    "command": 40,
    "shown": 10,
    "descriptor": 10,
    "csv": 8,
    "diff": 4,
    "partial": 5,
    **dict.fromkeys(("config", "experiment", "expect", "operands", "archive"), 4),
    **dict.fromkeys(("sizes", "tiles"), 2),
}
"""Of the inputs of `--plain`, how many each reader gets; in sum about a hundred."""

CHUNK = 500
"""Inputs that a process tries before it says how it got on."""

MAX_RESIDENT_BYTES = 2**30
"""Of a process that tries thousands of them."""

MAX_BYTES = 4 * 2**30
"""Address space; importing NumPy, pandas and matplotlib takes most of it."""

LONGEST_INPUT = 2**17
LONGEST_LIST = 2**10
"""Of `--sizes` and `--tiles`; libFuzzer would spend its time on long lists."""

FINDINGS = Path("fuzz-findings").resolve()
TESTS = Path(__file__).resolve().parents[1] / "tests"


def fuzz(name: str, runs: int, corpus: Path) -> None:
    """Fuzz a reader; atheris ends this process."""
    import resource

    import atheris

    sys.path[:0] = [str(TESTS), str(TESTS / "fuzz")]
    with atheris.instrument_imports(include=["gpubench"]):
        import readers
    import contract
    from mutations import mutated

    contract.LIMITED = False
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    reader = readers.READERS[name]
    seeds = reader.seeds()
    for number, seed in enumerate(seeds):
        (corpus / str(number)).write_bytes(seed)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = Random(seed)  # noqa: S311 # no secret
        if chance.random() < 0.5:  # noqa: PLR2004 # half of them
            return bytes(atheris.Mutate(data, most))
        return mutated(data or chance.choice(seeds), chance, reader.own)[:most]

    def test_one(data: bytes) -> None:
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        reader.read(data, folder)

    longest = LONGEST_LIST if name in {"sizes", "tiles"} else LONGEST_INPUT
    options = [
        *(f"-runs={runs}", f"-max_len={longest}", "-timeout=60", "-rss_limit_mb=4096"),
        *("-len_control=0", "-print_final_stats=1", f"-artifact_prefix={FINDINGS}/{name}-"),
    ]
    with contract.empty_folder() as folder:  # of all inputs: emptying it is faster than a new one
        atheris.Setup([name, *options, str(corpus)], test_one, custom_mutator=mutate)
        atheris.Fuzz()


def main(names: list[str], fraction: float) -> int:
    FINDINGS.mkdir(exist_ok=True)
    total, failed = 0, 0
    print(f"{'reader':10} {'inputs':>9} {'s':>6} {'per s':>9} {'edges':>6}  finding")
    for name in names:
        runs = max(1, int(RUNS[name] * fraction))
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as corpus:
            done = subprocess.run(
                [sys.executable, __file__, "--one", name, "--runs", str(runs), "--corpus", corpus],
                env=os.environ | {"COLUMNS": "80"},
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        duration_s = time.monotonic() - started
        output = done.stdout + done.stderr
        inputs = int((re.findall(r"stat::number_of_executed_units: (\d+)", output) or [0])[-1])
        edges = (re.findall(r"cov: (\d+)", output) or ["?"])[-1]
        finding = "none"
        if done.returncode:
            failed += 1
            errors = re.findall(
                r"^(?:\w+\.)*\w*(?:Error|Warning|Exception)\b.*$", output, re.MULTILINE
            )
            finding = (errors or output.splitlines()[-1:] or ["?"])[0][:200]
            (FINDINGS / f"{name}.log").write_text(output)
        total += inputs
        rate = inputs / duration_s
        print(
            f"{name:10} {inputs:9,} {duration_s:6.0f} {rate:9,.0f} {edges:>6}  {finding}",
            flush=True,
        )
    print(f"{total:,} inputs, {failed} readers with findings")
    return int(failed > 0)


def plain(names: list[str], numbers: range) -> int:
    """Try an input for each number, on all cores; print and count the findings."""
    print(f"inputs {numbers.start:,} to {numbers.stop - 1:,} of {', '.join(names)}", flush=True)
    started = time.monotonic()
    chunks = [(numbers[at : at + CHUNK], names) for at in range(0, len(numbers), CHUNK)]
    tried: Counter[str] = Counter()
    findings = most = 0
    with multiprocessing.get_context("fork").Pool() as pool:
        for of_readers, found, bytes_ in pool.imap_unordered(_try, chunks):
            tried += of_readers
            findings, most = findings + found, max(most, bytes_)
            print(
                f"{tried.total():9,} inputs in {time.monotonic() - started:.0f} s, "
                f"{findings} findings, {most / 2**20:,.0f} MiB at the most",
                flush=True,
            )
    print("\n".join(f"{name:10} {tried[name]:9,}" for name in names))
    return int(findings > 0 or most > MAX_RESIDENT_BYTES)


def _try(chunk: tuple[range, list[str]]) -> tuple[Counter[str], int, int]:
    """Inputs of each reader, findings, and the most memory that this process had, in bytes."""
    import resource

    sys.path[:0] = [str(TESTS), str(TESTS / "fuzz")]
    import contract
    import readers
    from mutations import mutated

    contract.TRACED = False
    numbers, names = chunk
    weights = [PLAIN[name] for name in names]
    tried: Counter[str] = Counter()
    found = 0
    seeds = {name: readers.READERS[name].seeds() for name in names}
    for number in numbers:
        chance = Random(number)  # noqa: S311 # no secret
        (name,) = chance.choices(names, weights)
        data = mutated(chance.choice(seeds[name]), chance, readers.READERS[name].own)
        tried[name] += 1
        try:
            with contract.empty_folder() as folder:
                readers.READERS[name].read(data, folder)
        except Exception:  # each is a finding
            found += 1
            FINDINGS.mkdir(exist_ok=True)
            (FINDINGS / f"{name}-{number}").write_bytes(data)
            last = traceback.format_exc(limit=-3)
            (FINDINGS / f"{name}-{number}.log").write_text(traceback.format_exc(), errors="replace")
            print(f"{name} {number}: {ascii(last.splitlines()[-1])[:300]}", flush=True)
    return tried, found, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("readers", nargs="*", metavar="reader")
    parser.add_argument(
        "--share", type=float, default=1.0, help="fraction of the inputs of each reader"
    )
    parser.add_argument("--plain", type=int, metavar="INPUTS", help="so many, without atheris")
    parser.add_argument("--from", type=int, default=0, dest="start", metavar="NUMBER")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        first = options.start
        sys.exit(plain(options.readers or list(PLAIN), range(first, first + options.plain)))
    if options.one:
        fuzz(options.one, options.runs, options.corpus)
    else:
        sys.exit(main(options.readers or list(RUNS), options.share))
