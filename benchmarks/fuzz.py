"""Mutated inputs for everything that reads what a user gives, each made from its own number.

    python benchmarks/fuzz.py 100000 [from] [reader ...]

`tests/fuzz/contract.py` says what must hold, `tests/fuzz/readers.py` what is read, and
`tests/fuzz/mutations.py` makes the inputs; the tests try a thousand. Most of those here are
commands. Prints how many of each were tried on all cores, and each finding, whose input is kept in
`fuzz-findings/`. Exits 1 if there is one, or a process took over a gigabyte.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

WEIGHTS = {
    **dict.fromkeys(("shown", "descriptor"), 10),
    **dict.fromkeys(("config", "experiment", "expect", "operands", "archive", "diff"), 4),
    **dict.fromkeys(("sizes", "tiles"), 2),
    "command": 40,
    "csv": 8,
    "partial": 5,
}
"""How many inputs of about a hundred each reader gets."""

CHUNK = 500
"""Inputs that a process tries before it says how it got on."""

MOST_BYTES = 2**30
"""Resident, of a process that tries thousands of them."""

FINDINGS = Path("fuzz-findings").resolve()
TESTS = Path(__file__).resolve().parents[1] / "tests"


def main(count: int, first: int, names: list[str]) -> int:
    """Try an input for each number; 1 if there is a finding."""
    print(f"inputs {first:,} to {first + count - 1:,} of {', '.join(names)}", flush=True)
    started = time.monotonic()
    ends = range(first, first + count, CHUNK)
    chunks = [(range(at, min(at + CHUNK, first + count)), names) for at in ends]
    tried: Counter[str] = Counter()
    findings = most = 0
    with multiprocessing.get_context("fork").Pool() as pool:
        for of_readers, found, used in pool.imap_unordered(attempt, chunks):
            tried += of_readers
            findings, most = findings + found, max(most, used)
    print("\n".join(f"{name:10} {tried[name]:9,}" for name in names))
    print(
        f"{tried.total():,} inputs in {time.monotonic() - started:.0f} s, {findings} findings, "
        f"{most / 2**20:,.0f} MiB at the most"
    )
    return int(findings > 0 or most > MOST_BYTES)


def attempt(chunk: tuple[range, list[str]]) -> tuple[Counter[str], int, int]:
    """Inputs of each reader, findings, and the most memory that this process had, in bytes."""
    sys.path[:0] = [str(TESTS), str(TESTS / "fuzz")]
    import contract
    import readers
    from mutations import mutated

    contract.TRACED = False
    numbers, names = chunk
    tried: Counter[str] = Counter()
    found = 0
    seeds = {name: readers.READERS[name].seeds() for name in names}
    for number in numbers:
        chance = Random(number)  # noqa: S311 # no secret
        (name,) = chance.choices(names, [WEIGHTS[name] for name in names])
        data = mutated(chance.choice(seeds[name]), chance, readers.READERS[name].own)
        tried[name] += 1
        try:
            with contract.empty_folder() as folder:
                readers.READERS[name].read(data, folder)
        except Exception:  # each is a finding
            found += 1
            FINDINGS.mkdir(exist_ok=True)
            (FINDINGS / f"{name}-{number}").write_bytes(data)
            text = traceback.format_exc()
            (FINDINGS / f"{name}-{number}.log").write_text(text, errors="replace")
            print(f"{name} {number}: {ascii(text.splitlines()[-1])[:300]}", flush=True)
    return tried, found, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    readers = [word for word in sys.argv[1:] if not word.isdecimal()]
    sys.exit(main(numbers[0], sum(numbers[1:]), readers or list(WEIGHTS)))
