"""Products of decoding: few rows, in CUDA graphs, with cold and with hot weights.

    python benchmarks/decode.py measure decode.csv
    python benchmarks/decode.py float32 few_rows_float32.csv 61
    python benchmarks/decode.py table decode.csv

The weights are those of configs/*-decode.csv, without the vocabulary. The contenders of `shapes.py`
take part: cuBLAS, cuBLASLt with the algorithm that is fastest in a graph, and our kernels with the
configurations of `--tiles auto` and others. A sample is one replay of a graph with full edges, so
launches do not overlap. Cold, each launch of the graph has operands of its own, in turn, which
together outgrow the L2 cache. The rows also have the time in which a kernel that only reads reads
the weights, and the time of an empty kernel.

With a precision and a seed, shapes are random and launches are alone: M is uniform in 1 to 64, and
N and K are log-uniform in 1024 to 16384. Hot weights take at most half of the L2 cache. Cold ones
have any size, and the tables tell those of at least 64 MB from smaller ones.
"""

import math
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Any

from shapes import Bench, Outcome, Result, outcome, read, summary, write
from shared import markdown

from gpubench.model import PRECISIONS, Cache, Launches
from gpubench.plan.problems import read_problems

ROWS = (1, 16, 64)

ROW_CLASSES = ((1, 1, "1"), (2, 16, "2 to 16"), (17, 64, "17 to 64"), (1, 64, "all"))
"""Classes of M: minimum, maximum, and name."""

COUNTS = dict.fromkeys(PRECISIONS, 24) | {"bfloat16": 30, "float16": 30}
"""Number of random shapes by precision, with hot and with cold weights."""

HOT_BYTES, LARGE_BYTES = 25 * 10**6, 64 * 10**6
"""Maximum bytes of hot weights, half of the L2 cache, and minimum bytes of large ones."""

LARGE_SHARE, SMALL_US = 0.85, 1.0
"""Minimum share of the read rate with large cold weights. Maximum time with small ones beyond that
of reading them and of an empty kernel."""

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
    while len(shapes) < COUNTS[dtype]:
        m, n, k = draw.randint(1, 64), extent(), extent()
        if cache == Cache.COLD or weights_bytes(dtype, n, k) <= HOT_BYTES:
            shapes.append((m, n, k))
    return shapes


def weights_bytes(dtype: str, n: int, k: int) -> int:
    """Return the bytes of B."""
    return n * k * PRECISIONS[dtype].item_bytes


def measure(path: Path, dtype: str = "bfloat16", seed: int = 0) -> None:
    """Time all contenders at all shapes, random ones with a seed, and append their rows."""
    started_s = time.perf_counter()
    for cache in (Cache.HOT, Cache.COLD):
        bench = Bench(dtype, cache, Launches.ALONE if seed else Launches.GRAPH)
        bench.other_kernels = ()  # their tiles have 64 rows or more: none won at 80 shapes
        backend: Any = bench.backend
        read_rate = backend.gauge.ceilings(())["measured_read_gbytes_per_s"]
        timers = backend.timers
        empty = repeat(timers.stream.launch_empty)
        empty_us = round(median(timers.events.sample(empty, 100, 9)), 4)
        print(f"reads: {read_rate:.0f} GB/s, empty kernel: {empty_us:.2f} µs", flush=True)
        shapes = random_shapes(seed, dtype, cache) if seed else listed_shapes()
        bench.compile(shapes, every=False)
        for shape in shapes:
            read_us = round(weights_bytes(dtype, *shape[1:]) / read_rate / 1e3, 4)
            results = bench.measure(shape, every=False)
            write((replace(one, read_us=read_us, empty_us=empty_us) for one in results), path)
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
    """Yield the state of the weights and the outcome of each shape of a file, cold before hot."""
    shapes = read(path)
    for cache in (Cache.COLD, Cache.HOT):
        for (dtype, _, n, k), results in shapes.items():
            size = "large" if weights_bytes(dtype, n, k) >= LARGE_BYTES else "small"
            if of_cache := [one for one in results if one.cache == cache]:
                yield f"{cache}, {size}" if cache == Cache.COLD else cache, outcome(of_cache)


def limits(path: Path) -> str:
    """Return how many products with cold weights take no longer than `longest_us`."""
    results: dict[tuple[str, str], list[Result]] = {}
    for state, one in outcomes(path):
        if one.own.read_us:
            results.setdefault((state, "ours"), []).append(one.own)
            results.setdefault((state, "libraries"), []).append(one.library)
    cells = [
        [
            *(*key, len(rows), sum(row.median_us <= longest_us(row) for row in rows)),
            *(f"{100 * share:.0f} %" for share in (median(shares), min(shares))),
        ]
        for key, rows in results.items()
        if (shares := [row.read_us / row.median_us for row in rows]) and key[0] != Cache.HOT
    ]
    rate = ["median of the read rate", "lowest"]
    return markdown(["weights", "kernels", "shapes", "within the limit", *rate], cells)


def longest_us(row: Result) -> float:
    """Return the longest time that a product with cold weights should take."""
    if weights_bytes(row.dtype, row.n, row.k) >= LARGE_BYTES:
        return row.read_us / LARGE_SHARE
    return row.read_us + row.empty_us + SMALL_US


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", path]:
            measure(Path(path))
        case [dtype, path, seed]:
            measure(Path(path), dtype, int(seed))
    for table in (summaries, limits, every_shape):
        print(table(Path(sys.argv[2])), end="\n\n")
