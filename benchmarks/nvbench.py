"""Time two kernels by gpubench and by NVBench in turns.

    python benchmarks/nvbench.py -o nvbench.json

Needs a GPU and `pip install cuda-bench`. Both tools launch gpubench's kernels, each in a process of
its own. NVBench's batch is a hot time. Exits 1 if the hot times differ by more than 1 %.

Cold times are not judged, because the methods differ. NVBench flushes the L2 cache before each
launch, and puts a pair of events around the launch. gpubench enqueues a batch of launches that
rotates several sets of operands. gpubench's times are medians, and NVBench's times are means.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared import GPUBENCH, bound, child, markdown, point, save, verdict

from gpubench.model import Problem
from gpubench.results.row import read

CASES = {
    "shared_tile 16 at 1024": ("shared_tile", "16", 1024),
    "packed_panels at 4096": ("packed_panels", "128x256x64/16x8/s2", 4096),
}
"""Variant, tile and size of each kernel, in float32."""

TURNS, LIMIT = 3, 0.01
TAGS = {"hot": "nv/batch/time/gpu/mean", "cold": "nv/cold/time/gpu/mean"}
"""Names of NVBench's times in its JSON files, in seconds."""

Time = tuple[str, str, float]
"""Case, cache, microseconds."""


def product(state: Any) -> None:
    """Let NVBench time a kernel of gpubench in NVBench's stream."""
    import cupy

    from gpubench.backends.cuda.backend import CudaBackend

    variant, tile, n = CASES[state.get_string("case")]
    backend = CudaBackend(0)
    with cupy.cuda.ExternalStream(state.get_stream().addressof()):  # the launch binds to it
        problem = Problem(op="gemm", m=n, n=n, k=n, dtype="float32")
        kernel = bound(backend, point(variant, tile, problem))
        kernel.run()
        launch = next(kernel.rotation)
        state.exec(lambda _launch: launch())


def nvbench(path: Path) -> Iterator[Time]:
    """Yield NVBench's times of all cases."""
    from cuda.bench.results import BenchmarkResult

    ended = child((sys.executable, __file__, "--run-nvbench", path), out=sys.stderr)
    if ended.code:
        sys.exit(f"nvbench.py: NVBench ended with {ended.code}")
    for state in BenchmarkResult.from_json(path)["product"]:
        for cache, tag in TAGS.items():
            yield state.point["case"], cache, 1e6 * state.summaries[tag].value


def gpubench(path: Path) -> Iterator[Time]:
    """Yield gpubench's times of all cases."""
    for case, (variant, tile, n) in CASES.items():
        words = ("--variants", variant, "--tiles", tile, "--sizes", str(n), "--cache", "both")
        command = (*GPUBENCH, "sweep", "--device", "cuda", *words, "--dtypes", "float32")
        child((*command, "-o", path, "--force"), out=sys.stderr)
        yield from ((case, str(row.cache), row.median_us or 0.0) for row in read(path))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("nvbench.json"))
    parser.add_argument("--run-nvbench", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run_nvbench:
        import cuda.bench

        cuda.bench.register(product).set_name("product").add_string_axis("case", [*CASES])
        cuda.bench.run_all_benchmarks([__file__, "--json", str(asked.run_nvbench)])
        return 0
    times: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            for tool, suffix in ((gpubench, "csv"), (nvbench, "json")):
                for case, cache, us in tool(Path(folder, f"{turn}.{suffix}")):
                    times[case, cache][f"{tool.__name__}_us"].append(us)
    save(asked.output, [{"case": x, "cache": y, **tools} for (x, y), tools in times.items()])
    lines, worst = [], 0.0
    for (case, cache), tools in times.items():
        ours, theirs = (statistics.median(tools[name]) for name in ("gpubench_us", "nvbench_us"))
        lines.append([case, cache, f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.4f}"])
        worst = max(worst, abs(ours / theirs - 1) * (cache == "hot"))
    print(markdown(["kernel", "cache", "gpubench, µs", "NVBench, µs", "ratio"], lines))
    return int(not verdict(worst <= LIMIT, f"hot times differ by at most {worst:.2%}"))


if __name__ == "__main__":
    sys.exit(main())
