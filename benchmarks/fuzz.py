"""Try mutated inputs on everything that reads user input. Each input is made from its own number.

    python benchmarks/fuzz.py 100000 [--first 0] [--readers csv,config] [--processes 1]
        [-o fuzz.json]

`tests/fuzz/contract.py` says what must be true, `tests/fuzz/readers.py` has the readers, and
`tests/fuzz/mutations.py` makes the inputs. The tests try a few inputs of each reader. Most inputs
here are whole commands. All cores are used, or `--processes`. Each finding is printed, and its
input is kept in `fuzz-findings/`. A call of more than 60 s is a finding (`contract.MAX_S`).
`slowest_s` is the wall time of the slowest input. Exits 1 if there is a finding, or if a process
used more than a gigabyte.
"""

import multiprocessing
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

from shared import parser, save

from gpubench.results.provenance import package_version

WEIGHTS = {
    **dict.fromkeys(("shown", "descriptor", "saved"), 4),
    **dict.fromkeys(("config", "experiment", "expect", "operands", "archive"), 4),
    **dict.fromkeys(("diff", "csv"), 4),
    **dict.fromkeys(("where", "winners", "source", "problems", "partial", "race"), 8),
    **dict.fromkeys(("build", "fleet"), 5),
    "command": 20,
}
"""Relative number of inputs for each reader."""

CHUNK = 500
"""Number of inputs that a process tries before it reports its counts."""

MAX_BYTES = 2**30
"""Maximum resident memory of a process that tries thousands of inputs."""

FINDINGS = Path("fuzz-findings").resolve()
TESTS = Path(__file__).resolve().parents[1] / "tests"


def main() -> int:
    """Try an input for each number; return 1 if there is a finding."""
    options = parser(__doc__, "fuzz.json")
    options.add_argument("inputs", type=int)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--readers", default=",".join(WEIGHTS))
    options.add_argument("--processes", type=int, help="default: the number of cores")
    asked = options.parse_args()
    names, end = asked.readers.split(","), asked.first + asked.inputs
    started = time.monotonic()
    starts = range(asked.first, end, CHUNK)
    chunks = [(range(start, min(start + CHUNK, end)), names) for start in starts]
    tried: Counter[str] = Counter()
    findings = memory = 0
    slowest_s = 0.0
    with multiprocessing.get_context("fork").Pool(asked.processes) as pool:
        for counts, failed, used, took_s in pool.imap_unordered(attempt, chunks):
            tried += counts
            findings, memory = findings + failed, max(memory, used)
            slowest_s = max(slowest_s, took_s)
    run = {"package": package_version()[0], "first": asked.first, "inputs": tried.total()}
    run |= {"seconds": round(time.monotonic() - started), "findings": findings}
    run["slowest_s"] = round(slowest_s, 1)
    save(asked.output, [run | {"memory_mib": memory // 2**20, "readers": tried}])
    print(f"{tried.total():,} inputs, {findings} findings")
    return int(findings > 0 or memory > MAX_BYTES)


def attempt(chunk: tuple[range, list[str]]) -> tuple[Counter[str], int, int, float]:
    """Return the inputs per reader, the number of findings, and the highest figures.

    These are the memory of the process in bytes, and the wall time of an input in seconds.
    """
    sys.path[:0] = [str(TESTS), str(TESTS / "fuzz")]
    import contract
    import readers
    from mutations import mutated

    numbers, names = chunk
    tried: Counter[str] = Counter()
    findings = 0
    slowest_s = 0.0
    seeds = {name: readers.READERS[name].seeds() for name in names}
    for number in numbers:
        chance = Random(number)  # noqa: S311 # no secret
        (name,) = chance.choices(names, [WEIGHTS[name] for name in names])
        data = mutated(chance.choice(seeds[name]), chance, readers.READERS[name].own)
        tried[name] += 1
        started = time.monotonic()
        try:
            with contract.empty_folder() as folder:
                readers.READERS[name].read(data, folder)
        except Exception:  # each is a finding
            findings += 1
            FINDINGS.mkdir(exist_ok=True)
            (FINDINGS / f"{name}-{number}").write_bytes(data)
            text = traceback.format_exc()
            (FINDINGS / f"{name}-{number}.log").write_text(text, errors="replace")
            print(f"{name} {number}: {ascii(text.splitlines()[-1])[:300]}", flush=True)
        slowest_s = max(slowest_s, time.monotonic() - started)
    memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return tried, findings, memory, slowest_s


if __name__ == "__main__":
    sys.exit(main())
