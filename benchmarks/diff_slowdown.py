"""Sweeps of builds in which one kernel really is slower, for `benchmarks/diff_power.py`.

    python benchmarks/diff_slowdown.py DIRECTORY COUNT --sizes 256,512,1024,2048 \
        --tiles 1,2,4,8,16,32 --rounds 10 --budget 15

Copies the package, lets `shared_tile` read one more element of shared memory, volatile and without
use, in some of the steps, and measures by how much that slows it down (tile 16 at 1024, beside the
kernel as it is). The copies that are slower by the least above 5 % and 2 % then make COUNT sweeps
each, into DIRECTORY/slowed-5 and DIRECTORY/slowed-2; the further arguments go to `gpubench sweep`.
The copies stay in DIRECTORY/builds. Sweeps that are there already are kept, so an interrupted run
continues where it stopped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import gpubench
from gpubench.row import read

KERNEL = "shared_tile"
LOOP = "for (int k = 0; k < TILE; ++k) sum += a_tile[y][k] * b_tile[k][x];\n"
WASTE = (
    "    if ((k0 / TILE) % {every} == 0)\n"
    "      for (int w = 0; w < {reads}; ++w)\n"
    "        (void)*static_cast<volatile Scalar*>(&a_tile[y][(x + w) % TILE]);\n"
)
TRIED = ((1, 4), (1, 3), (1, 2), (1, 1), (2, 1), (4, 1), (8, 1))
"""Wasted reads, and in every how many steps: printed as `4-in-1`."""

WANTED = (5, 2)
CALIBRATION = ("--sizes", "1024", "--tiles", "16", "--variants", KERNEL, "--rounds", "5")


def build(folder: Path, reads: int, every: int) -> Path:
    """A copy of the package with the waste in it; its parent is what PYTHONPATH needs."""
    if folder.exists():
        shutil.rmtree(folder)
    package = Path(gpubench.__file__).parent
    shutil.copytree(package, folder / "gpubench", ignore=shutil.ignore_patterns("__pycache__"))
    source = folder / "gpubench" / "kernels" / "gemm" / f"{KERNEL}.cu"
    text = source.read_text(encoding="utf-8")
    if text.count(LOOP) != 1:
        raise SystemExit(f"{source} has changed: the loop that is to be slowed is not there")
    waste = WASTE.format(reads=reads, every=every)
    source.write_text(text.replace(LOOP, LOOP + waste), encoding="utf-8")
    return folder


def sweep(package: Path, output: Path, *options: str) -> None:
    if output.exists():
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    path = (str(package), os.environ.get("PYTHONPATH"))
    # -P: not the package in the directory where this is run, but the one PYTHONPATH names.
    command = [sys.executable, "-P", "-m", "gpubench", "sweep", *options, "--output", str(output)]
    done = subprocess.run(
        [*command, "--force"],  # over what an interrupted sweep left
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{output}: {done.stderr.strip()}")


def time_us(path: Path) -> float:
    (row,) = read(path)
    if row.median_us is None:
        raise SystemExit(f"{path}: {row.status}: {row.reason}")
    return row.median_us


def main(folder_name: str, count: str, *options: str) -> int:
    folder = Path(folder_name)
    builds = folder / "builds"
    untouched = Path(gpubench.__file__).parent.parent
    sweep(untouched, builds / "untouched.csv", *CALIBRATION)
    whole_us = time_us(builds / "untouched.csv")
    slower: dict[Path, float] = {}
    for reads, every in TRIED:
        package = build(builds / f"{reads}-in-{every}", reads, every)
        sweep(package, package.with_suffix(".csv"), *CALIBRATION)
        slower[package] = time_us(package.with_suffix(".csv")) / whole_us
        print(f"{package.name}: {slower[package]:.4f} times as long", flush=True)
    for percent in WANTED:
        package = min(
            (copy for copy in slower if slower[copy] >= 1 + percent / 100), key=slower.__getitem__
        )
        print(f"slowed-{percent}: {package.name}, {100 * (slower[package] - 1):.2f} % slower")
        for number in range(1, int(count) + 1):
            path = folder / f"slowed-{percent}" / f"{number:02}.csv"
            began = time.monotonic()
            sweep(package, path, *options)
            print(f"{path}: {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
