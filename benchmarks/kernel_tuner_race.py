"""Wall time for 64 configurations: gpubench against Kernel Tuner with its defaults.

    pip install kernel-tuner
    python benchmarks/kernel_tuner_race.py

Both time this repository's `shared_tile` with tiles 1..32 at 1024 and at 2048 in float32, each in
a new process. Kernel Tuner's defaults are 7 launches per configuration and no interval; gpubench
verifies every point and samples to ±0.5 % (`--rounds 1`).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpubench.plan.registry import KERNELS
from gpubench.row import read

SIZES = (1024, 2048)
TILES = list(range(1, 33))


def tune() -> None:
    """Run Kernel Tuner (in a process of its own)."""
    import kernel_tuner
    import numpy as np

    source = (KERNELS / "gemm" / "shared_tile.cu").read_text(encoding="utf-8")
    for n in SIZES:
        rng = np.random.default_rng(2006)
        a, b = (rng.random((n, n), dtype=np.float32) for _ in range(2))
        extents = [np.int32(n)] * 3
        kernel_tuner.tune_kernel(
            "shared_tile<float, TILE_EDGE>",
            source,
            (n, n),
            [a, b, np.zeros_like(a), *extents],
            {"TILE_EDGE": TILES},
            grid_div_x=["TILE_EDGE"],
            grid_div_y=["TILE_EDGE"],
            block_size_names=["TILE_EDGE", "TILE_EDGE"],
            lang="CUPY",
            compiler_options=["--std=c++17"],
        )


def wall_s(*command: str) -> float:
    """Wall time of a process that must succeed."""
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - start


def main() -> int:
    if "--tune" in sys.argv:
        tune()
        return 0
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "race.csv"
        gpubench_s = wall_s(
            *(sys.executable, "-m", "gpubench", "sweep", "--variants", "shared_tile"),
            *("--sizes", ",".join(map(str, SIZES)), "--tiles", "1..32", "--rounds", "1"),
            *("--output", str(output)),
        )
        rows = read(output)
    tuner_s = wall_s(sys.executable, __file__, "--tune")
    widest = max(
        (row.ci_high_us - row.ci_low_us) / 2 / row.median_us for row in rows if row.median_us
    )
    precise = sum(row.stop_reason == "precise" for row in rows)
    print(f"\nKernel Tuner: {tuner_s:.1f} s; gpubench: {gpubench_s:.1f} s, {len(rows)} points")
    print(f"gpubench's intervals: widest ±{100 * widest:.2f} %, {precise} stopped as precise")
    return 0 if gpubench_s <= tuner_s else 1


if __name__ == "__main__":
    sys.exit(main())
