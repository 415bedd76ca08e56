"""A million inputs for everything that reads what a user gives: coverage-guided, by atheris.

    pip install atheris            # Linux, CPython 3.11 to 3.13
    python benchmarks/fuzz.py [--share 0.01] [reader ...]

What must hold stands in `tests/fuzz/contract.py`, what is read in `tests/fuzz/readers.py`: a test
tries a few thousand, this a million. Half of the inputs are libFuzzer's mutations of those that
reached new code, half those of `tests/fuzz/mutations.py`. Each reader runs in a process of its own
with at most `MAX_BYTES` of address space. Prints inputs, time, inputs a second, edges of our code
reached, and the first finding, whose input is left in `fuzz-findings/`. Exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
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
"""By how long one takes: together a million, in twenty minutes of one core."""

MAX_BYTES = 4 * 2**30
"""Address space, of which Python with NumPy, pandas and matplotlib takes most before it begins."""

LONGEST_INPUT = 2**17
LONGEST_LIST = 2**10
"""Of the items of `--sizes` and `--tiles`; libFuzzer would spend its time on long ones."""
FINDINGS = Path("fuzz-findings").resolve()
TESTS = Path(__file__).resolve().parents[1] / "tests"


def fuzz(name: str, runs: int, corpus: Path) -> None:
    """In a process of its own, which atheris ends."""
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

    keeper = contract.empty_folder()
    folder = keeper.__enter__()  # one for all: a folder is slower to make than to empty

    def one(data: bytes) -> None:
        for left in folder.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()
        reader.read(data, folder)

    longest = LONGEST_LIST if name in {"sizes", "tiles"} else LONGEST_INPUT
    options = [
        *(f"-runs={runs}", f"-max_len={longest}", "-timeout=60", "-rss_limit_mb=4096"),
        *("-len_control=0", "-print_final_stats=1", f"-artifact_prefix={FINDINGS}/{name}-"),
    ]
    atheris.Setup([name, *options, str(corpus)], one, custom_mutator=mutate)
    atheris.Fuzz()


def main(names: list[str], share: float) -> int:
    FINDINGS.mkdir(exist_ok=True)
    total, failed = 0, 0
    print(f"{'reader':10} {'inputs':>9} {'s':>6} {'a second':>9} {'edges':>6}  finding")
    for name in names:
        runs = max(1, int(RUNS[name] * share))
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as corpus:
            done = subprocess.run(
                [sys.executable, __file__, "--one", name, "--runs", str(runs), "--corpus", corpus],
                env=os.environ | {"COLUMNS": "80"},
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        took_s = time.monotonic() - began
        said = done.stdout + done.stderr
        inputs = int((re.findall(r"stat::number_of_executed_units: (\d+)", said) or [0])[-1])
        edges = (re.findall(r"cov: (\d+)", said) or ["?"])[-1]
        finding = "none"
        if done.returncode:
            failed += 1
            errors = re.findall(
                r"^(?:\w+\.)*\w*(?:Error|Warning|Exception)\b.*$", said, re.MULTILINE
            )
            finding = (errors or said.splitlines()[-1:] or ["?"])[0][:200]
            (FINDINGS / f"{name}.log").write_text(said)
        total += inputs
        rate = inputs / took_s
        print(f"{name:10} {inputs:9,} {took_s:6.0f} {rate:9,.0f} {edges:>6}  {finding}", flush=True)
    print(f"{total:,} inputs, {failed} readers with findings")
    return int(failed > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("readers", nargs="*", metavar="reader")
    parser.add_argument("--share", type=float, default=1.0, help="of each reader's inputs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        fuzz(asked.one, asked.runs, asked.corpus)
    else:
        sys.exit(main(asked.readers or list(RUNS), asked.share))
