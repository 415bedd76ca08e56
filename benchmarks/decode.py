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
from itertools import product
from pathlib import Path

from shapes import Bench, Result, outcome, read, summary, write
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


def table(path: Path) -> str:
    """Return a summary of the ratios for each cache and number of rows, then each shape."""
    groups: dict[tuple[str, int], list[float]] = {}
    cells = []
    for (_, m, n, k), results in read(path).items():
        for cache in Cache:
            of_cache: list[Result] = [one for one in results if one.cache == cache]
            if not of_cache:
                continue
            one = outcome(of_cache)
            groups.setdefault((cache, m), []).append(one.ratio)
            kernels = (f"{one.library.variant} {one.library.algorithm}", one.own.variant)
            times = (f"{one.library.median_us:.2f}", f"{one.own.median_us:.2f}")
            cells.append([cache, f"{m}×{n}×{k}", *kernels, *times, f"{one.ratio:.3f}"])
    means = [
        [f"{cache}, M = {m}", *summary(ratios).split(" | ")]
        for (cache, m), ratios in groups.items()
    ]
    return "\n\n".join(
        (
            markdown(
                ["weights", "shapes", "geometric mean", "won", "tenth percentile", "lowest"], means
            ),
            markdown(
                ["weights", "M×N×K", "library", "ours", "library, µs", "ours, µs", "ratio"],
                sorted(cells),
            ),
        )
    )


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        measure(Path(sys.argv[2]))
    print(table(Path(sys.argv[2])))
