"""Time exported programs and gpubench in turns.

    python benchmarks/exports.py build/programs -o exports.json

Needs nvcc and a GPU. Programs that the directory lacks are exported and built first. Exits 1 if the
median of a program differs from gpubench's by more than 3 %, or if its result is wrong.
"""

from __future__ import annotations

import argparse
import re
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

from shared import GPUBENCH, child, save, verdict

from gpubench.results.row import read

PROGRAMS = {
    "shared_tile": ("32", "float32"),
    "packed_panels": ("128x256x64/16x8/s2", "float32"),
    "wgmma_mixed": ("256x192x64/s3/cluster=1x2/group=16", "bfloat16"),
}
"""Tile and dtype of each exported kernel."""

SIZE, TURNS, LIMIT = "4096", 3, 0.03


def build(name: str, folder: Path) -> None:
    """Export a kernel, and compile it by the command that its source states."""
    tile, dtype = PROGRAMS[name]
    words = ("export", name, "--tiles", tile, "--dtypes", dtype, "--sizes", SIZE, "--arch", "sm_90")
    if code := child((*GPUBENCH, *words, "--dir", folder, "--force")).code:
        sys.exit(code)
    source = (folder / f"{name}.cu").read_text(encoding="utf-8")
    (command,) = re.findall(r"^//   (nvcc .*) && ", source, re.MULTILINE)
    if code := child(shlex.split(command), cwd=folder).code:
        sys.exit(code)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("exports.json"))
    asked = parser.parse_args()
    times_us: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as temporary:
        for name in (name for _ in range(TURNS) for name in PROGRAMS):
            if not (asked.folder / name).exists():
                build(name, asked.folder)
            printed = child([(asked.folder / name).absolute()]).out
            time = re.search(r": ([\d.]+) us a launch", printed)
            if time is None or "WRONG" in printed:
                return int(not verdict(False, f"{name}: {printed}"))
            tile, dtype = PROGRAMS[name]
            path = Path(temporary, "rows.csv")
            words = ("sweep", "--variants", name, "--tiles", tile, "--dtypes", dtype)
            child((*GPUBENCH, *words, "--device", "cuda", "--sizes", SIZE, "-o", path, "--force"))
            times_us[name].append((float(time[1]), read(path)[0].median_us or 0.0))
    medians = {
        name: tuple(map(statistics.median, zip(*pairs, strict=True)))
        for name, pairs in times_us.items()
    }
    save(
        asked.output,
        {name: {"exported_us": own, "gpubench_us": ours} for name, (own, ours) in medians.items()},
    )
    worst = max(abs(own / ours - 1) for own, ours in medians.values())
    return int(not verdict(worst <= LIMIT, f"exported programs within {worst:.1%} of gpubench"))


if __name__ == "__main__":
    sys.exit(main())
