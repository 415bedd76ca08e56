"""Products of decoding: few rows, in CUDA graphs, with cold and with hot weights.

    python benchmarks/decode.py measure decode.csv
    python benchmarks/decode.py table decode.csv

The weights are those of Llama 3 8B and Qwen2.5 7B (public configurations: hidden sizes, heads,
feed-forward sizes). The contenders of `shapes.py` take part: cuBLAS, cuBLASLt with the algorithm
that is fastest in a graph, and our kernels with the configurations of `--tiles auto` and others. A
sample is one replay of a graph with full edges, so launches do not overlap. Cold, each launch of
the graph has operands of its own, in turn, which together outgrow the L2 cache.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from shapes import Bench, Outcome, outcome, read, summary, write
from shared import markdown

from gpubench.model import Cache, Launches

ROWS = (1, 16, 64)

WEIGHTS = {
    "Llama 3 8B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "Qwen2.5 7B": ((4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)),
}
"""(N, K) by model: queries, keys and values in one product, the output, and the feed-forward."""


def measure(path: Path) -> None:
    """Time all contenders at all shapes, and append their rows to the file."""
    started_s = time.perf_counter()
    shapes = [(m, n, k) for of_model in WEIGHTS.values() for (n, k), m in product(of_model, ROWS)]
    for cache in (Cache.COLD, Cache.HOT):
        bench = Bench("bfloat16", cache, Launches.GRAPH)
        bench.compile(shapes, every=False)
        for shape in shapes:
            write(bench.measure(shape, every=False), path)
            print(shape, cache, f"{time.perf_counter() - started_s:.0f} s", flush=True)


def summaries(path: Path) -> str:
    """Return a table of the ratios for each cache and number of rows."""
    ratios: dict[tuple[str, int], list[float]] = {}
    for cache, one in outcomes(path):
        ratios.setdefault((cache, one.own.m), []).append(one.ratio)
    cells = [[cache, m, *summary(of_rows).split(" | ")] for (cache, m), of_rows in ratios.items()]
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
    if sys.argv[1] == "measure":
        measure(Path(sys.argv[2]))
    print(summaries(Path(sys.argv[2])), every_shape(Path(sys.argv[2])), sep="\n\n")
