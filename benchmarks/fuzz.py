"""A million inputs for everything that reads what a user gives: coverage-guided fuzzing by atheris.

    pip install atheris            # Linux, CPython 3.11 to 3.13
    python benchmarks/fuzz.py [--share 0.01] [reader ...]

`tests/fuzz/contract.py` says what must hold, `tests/fuzz/readers.py` what is read; the tests try a
few thousand inputs. Half of the inputs here are libFuzzer's mutations of those that reached new
code, half are made by `tests/fuzz/mutations.py`. Each reader runs in a process of its own with at
most `MAX_BYTES` of address space. Prints inputs, time, inputs per second, edges of the package's
code reached, and the first finding, whose input is kept in `fuzz-findings/`. Exits 1 if there is
a finding.
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
"""Inputs of each reader, fewer where one takes longer: a million, in twenty minutes of one core."""

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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("readers", nargs="*", metavar="reader")
    parser.add_argument(
        "--share", type=float, default=1.0, help="fraction of the inputs of each reader"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        fuzz(options.one, options.runs, options.corpus)
    else:
        sys.exit(main(options.readers or list(RUNS), options.share))
