"""Try mutated inputs on everything that reads user input. Each input is made from its own number.

    python research/fuzz.py 100000 [--first 0] [--readers csv,config] [--processes 1]
        [-o fuzz.json]

`tests/fuzz/contract.py` has the conditions that must hold, `tests/fuzz/readers.py` has the readers,
and `tests/fuzz/mutations.py` makes the inputs. The tests try a few inputs of each reader. Most
inputs here are whole commands. By default, one process runs on each core. Each finding is printed,
and its input is kept in `fuzz-findings/`. A call of more than 60 s of CPU time (`contract.MAX_S`)
is a finding. `slowest_s` is the wall time of the slowest input. Exits 1 if there is a finding, or
if a process used more than a gigabyte.
"""

import multiprocessing
import resource
import sys
import time
import traceback
from collections import Counter
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from random import Random

from common import ROOT, parser, save

sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

import contract
from mutations import mutated
from readers import READERS

from gpubench.results.provenance import package_version

WEIGHTS = dict.fromkeys(READERS, 4) | {"command": 20}
"""Relative number of inputs for each reader."""

NEEDED = {"scheduler": "distributed"}
"""Packages that only some readers need. A reader is left out if its package is missing."""

MAX_BYTES = 2**30
"""Maximum resident memory of a process that tries thousands of inputs."""

FINDINGS = Path("fuzz-findings").resolve()


def main() -> int:
    """Try an input for each number. Return 1 if there is a finding."""
    options = parser(__doc__, "fuzz.json")
    options.add_argument("inputs", type=int)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--readers", default=",".join(WEIGHTS))
    options.add_argument("--processes", type=int, help="default: the number of cores")
    asked = options.parse_args()
    started = time.monotonic()
    left_out = [name for name, package in NEEDED.items() if not find_spec(package)]
    for name in left_out:
        print(f"{name} is left out: {NEEDED[name]} is not installed", flush=True)
    numbers = range(asked.first, asked.first + asked.inputs)
    with multiprocessing.get_context("fork").Pool(asked.processes) as pool:
        attempt = partial(attempted, asked.readers.split(","), left_out)
        outcomes = pool.map(attempt, numbers, chunksize=min(500, 1 + asked.inputs // 8))
        pool.close()
        pool.join()
    names, failed, took_s = zip(*filter(None, outcomes), strict=True)
    memory = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    run = {"package": package_version()[0], "first": asked.first, "inputs": len(names)}
    run |= {"seconds": round(time.monotonic() - started), "findings": sum(failed)}
    run |= {"slowest_s": round(max(took_s), 1), "memory_mib": memory // 2**20}
    save(asked.output, [run | {"readers": Counter(names), "left_out": left_out}])
    print(f"{len(names):,} inputs, {sum(failed)} findings")
    return int(any(failed) or memory > MAX_BYTES)


@cache
def seeds(name: str) -> list[bytes]:
    """Return the valid inputs of a reader, which are mutated."""
    return list(READERS[name].seeds())


def attempted(names: list[str], left_out: list[str], number: int) -> tuple[str, bool, float] | None:
    """Try an input. Return the reader, whether there is a finding, and the wall time in seconds.

    Return None if the reader is left out. The number of an input determines its reader, on any
    machine.
    """
    chance = Random(number)  # noqa: S311 # no secret
    (name,) = chance.choices(names, [WEIGHTS[name] for name in names])
    if name in left_out:
        return None
    data = mutated(chance.choice(seeds(name)), chance, READERS[name].own)
    started = time.monotonic()
    is_finding = False
    try:
        with contract.empty_folder() as folder:
            READERS[name].read(data, folder)
    except Exception:  # any other exception is a finding
        is_finding = True
        FINDINGS.mkdir(exist_ok=True)
        (FINDINGS / f"{name}-{number}").write_bytes(data)
        text = traceback.format_exc()
        (FINDINGS / f"{name}-{number}.log").write_text(text, errors="replace")
        print(f"{name} {number}: {ascii(text.splitlines()[-1])[:300]}", flush=True)
    return name, is_finding, time.monotonic() - started


if __name__ == "__main__":
    sys.exit(main())
