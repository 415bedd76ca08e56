"""Products of decoding: few rows, in CUDA graphs, with cold and with hot weights.

    python benchmarks/decode.py measure decode.csv
    python benchmarks/decode.py float32 few_rows_float32.csv 61
    python benchmarks/decode.py table decode.csv

The weights are those of configs/*-decode.csv, without the vocabulary. The contenders of `shapes.py`
take part: cuBLAS, cuBLASLt with the algorithm that is fastest in a graph, and our kernels with the
configurations of `--tiles auto` and others. A sample is one replay of a graph with full edges, so
launches do not overlap. Cold, each launch of the graph has operands of its own, in turn, which
together outgrow the L2 cache. `measure` also prints the rate of reads without a product.

With a precision and a seed, shapes are random and launches are alone: M is uniform in 1 to 64, and
N and K are log-uniform in 1024 to 16384. Hot weights take at most half of the L2 cache, and cold
ones at least 64 MB.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from shapes import Bench, Outcome, outcome, read, summary, write
from shared import markdown

from gpubench.model import PRECISIONS, Cache, Launches
from gpubench.plan.problems import read_problems

ROWS = (1, 16, 64)

ROW_CLASSES = ((1, 1, "1"), (2, 16, "2 to 16"), (17, 64, "17 to 64"), (1, 64, "all"))
"""Classes of M: minimum, maximum, and name."""

COUNTS = {
    ("bfloat16", Cache.HOT): 30,
    ("bfloat16", Cache.COLD): 8,
    ("float32", Cache.HOT): 24,
    ("float32", Cache.COLD): 4,
}
"""Number of random shapes by precision and state of the cache."""

HOT_BYTES, COLD_BYTES = 25 * 10**6, 64 * 10**6
"""Maximum bytes of hot weights, and minimum bytes of cold ones."""

LISTS = Path(__file__).parent.parent / "configs"


def listed_shapes() -> list[tuple[int, int, int]]:
    """Return the shapes of all lists with the rows of `ROWS`."""
    lists = [read_problems(path, "gemm") for path in sorted(LISTS.glob("*-decode.csv"))]
    layers = [one for listed in lists for one in listed if not one.name.startswith("head")]
    return [one.size for one in layers if one.m in ROWS]


def random_shapes(seed: int, dtype: str, cache: Cache) -> list[tuple[int, int, int]]:
    """Draw shapes of few rows whose weights suit the state of the cache."""
    draw = random.Random(seed)  # noqa: S311 # a sample, not a secret

    def extent() -> int:
        return round(math.exp(draw.uniform(math.log(1024), math.log(16384))) / 16) * 16

    shapes: list[tuple[int, int, int]] = []
    while len(shapes) < COUNTS[dtype, cache]:
        m, n, k = draw.randint(1, 64), extent(), extent()
        weights = n * k * PRECISIONS[dtype].item_bytes
        if weights >= COLD_BYTES if cache == Cache.COLD else weights <= HOT_BYTES:
            shapes.append((m, n, k))
    return shapes


def measure(path: Path, dtype: str = "bfloat16", seed: int = 0) -> None:
    """Time all contenders at all shapes, random ones with a seed, and append their rows."""
    started_s = time.perf_counter()
    for cache in (Cache.HOT, Cache.COLD):
        bench = Bench(dtype, cache, Launches.ALONE if seed else Launches.GRAPH)
        print(bench.backend.gauge.ceilings(()), flush=True)
        shapes = random_shapes(seed, dtype, cache) if seed else listed_shapes()
        bench.compile(shapes, every=False)
        for shape in shapes:
            write(bench.measure(shape, every=False), path)
            print(shape, cache, f"{time.perf_counter() - started_s:.0f} s", flush=True)


def summaries(path: Path) -> str:
    """Return a table of the ratios for each cache and number of rows."""
    ratios: dict[tuple[str, str], list[float]] = {}
    every = sorted(outcomes(path), key=lambda each: (each[0], each[1].own.m))
    for least, most, label in ROW_CLASSES:
        for cache, one in every:
            if least <= one.own.m <= most:
                ratios.setdefault((cache, label), []).append(one.ratio)
    cells = [
        [*key, *summary(of_rows)]
        for key, of_rows in sorted(ratios.items(), key=lambda entry: entry[0][0])
    ]
    heading = ["weights", "M", "shapes", "geometric mean", "won", "tenth percentile", "lowest"]
    return markdown(heading, cells)


def every_shape(path: Path) -> str:
    """Return a table of all shapes."""
    cells = [
        [
            *(cache, f"{one.own.m}×{one.own.n}×{one.own.k}"),
            *(f"{one.library.variant} {one.library.algorithm}", one.own.variant),
            *(f"{one.library.median_us:.2f}", f"{one.own.median_us:.2f}", f"{one.ratio:.3f}"),
        ]
        for cache, one in outcomes(path)
    ]
    heading = ["weights", "M×N×K", "library", "ours", "library, µs", "ours, µs", "ratio"]
    return markdown(heading, cells)


def outcomes(path: Path) -> Iterator[tuple[str, Outcome]]:
    """Yield what a file says of each shape, cold before hot."""
    shapes = read(path)
    for cache in (Cache.COLD, Cache.HOT):
        for results in shapes.values():
            if of_cache := [one for one in results if one.cache == cache]:
                yield cache, outcome(of_cache)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", path]:
            measure(Path(path))
        case [dtype, path, seed]:
            measure(Path(path), dtype, int(seed))
    print(summaries(Path(sys.argv[2])), every_shape(Path(sys.argv[2])), sep="\n\n")
