"""Measure kernels on a GPU that are wrong at one size of a sweep, in ten orders and neighbourhoods.

    python benchmarks/neighbours.py [-o neighbours.json]

`benchmarks/neighbours/` has ten faults that depend on size, values or cache. Exits 1 unless each is
`wrong` at its size in each order and state of the cache, is `ok` at the other sizes, and the right
kernel is `ok` everywhere. Needs a GPU.
"""

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

from shared import kernel_point, save, verdict

from gpubench.backends import open_backend
from gpubench.engine.runner import Runner
from gpubench.model import Cache, Problem, Status, Timing
from gpubench.plan.descriptor import load

QUICK = Timing(rounds=1, min_samples=2, min_device_s=0.0, sample_us=1.0, max_wall_s=0.1)
WRONG_AT = (192, 160, 1000)
NEIGHBOURS = ((192, 160, 250), (96, 80, 300), (320, 300, 310), (40, 40, 700))
ORDERS = 10


def orders() -> list[tuple[tuple[int, int, int], ...]]:
    """Return the size alone, and in random orders with some neighbours."""
    draw = random.Random(7)  # noqa: S311 # an order, not a secret
    chosen: list[tuple[tuple[int, int, int], ...]] = [(WRONG_AT,)]
    while len(chosen) < ORDERS:
        part = [WRONG_AT, *draw.sample(NEIGHBOURS, draw.randrange(1, len(NEIGHBOURS)))]
        draw.shuffle(part)
        chosen.append(tuple(part))
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("neighbours.json"))
    asked = parser.parse_args()
    variant = load(Path(__file__).with_name("neighbours") / "sometimes.py", "gemm")
    backend = open_backend("cuda")
    tiles = variant.tiles.defaults if variant.tiles else ()
    counts: dict[str, Counter[str]] = {str(tile): Counter() for tile in tiles}
    outcomes = []
    for tile in tiles:
        found = counts[str(tile)]
        for cache in Cache:
            for sizes in orders():
                runner = Runner(backend, QUICK, seed=1)
                for m, n, k in sizes:
                    problem = Problem(op="gemm", m=m, n=n, k=k, dtype="float32")
                    status = runner.measure(kernel_point(variant, tile, problem, cache)).status
                    where = "its size" if (m, n, k) == WRONG_AT else "another size"
                    found[f"{status} at {where}"] += 1
        expected = Status.WRONG if tile["fault"] else Status.OK
        at_its_size = found[f"{expected} at its size"] == ORDERS * len(Cache)
        others = set(found) <= {f"{expected} at its size", "ok at another size"}
        outcomes.append(verdict(at_its_size and others, f"{tile}: {dict(found)}"))
    save(asked.output, [{"tile": name, **found} for name, found in counts.items()])
    return int(not all(outcomes))


if __name__ == "__main__":
    sys.exit(main())
