"""Compare a sweep on all GPUs of this machine with one GPU, kill a worker, and run fleet.

    python research/many_gpus.py -o many_gpus.json

Needs two or more GPUs of one kind, and the extra `fleet`. results/claims.md has the bounds. A sweep
on one GPU and a sweep on all GPUs run in turns, twice. `fleet` runs twice, and once more while
another program uses the last GPU.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from time import sleep
from typing import Any

import psutil
from common import GPUBENCH, Ended, child, parser, save

from gpubench.results.row import read

SWEEP = ("sweep", "--sizes", "1024,2048", "--tiles", "1..32")

OTHER_JOB = """
import cupy
a = cupy.ones((8192, 8192), cupy.float32)
while True:
    a @ a
    cupy.cuda.Device().synchronize()
"""
"""A program that keeps a GPU busy."""

PHASES = re.compile(r"[\d.]+ s: ")  # the beginning of the line that says what took the time

KILL_AFTER = 500
"""Number of measurements after which a worker is killed. The sweep has 1,480 measurements."""


def gpubench(*words: str | Path, **variables: str) -> Ended:
    return child((*GPUBENCH, *words), **variables)  # type: ignore[arg-type]


def sweep(name: str, path: Path, *words: str, **variables: str) -> dict[str, Any]:
    """Sweep, and return the wall time and the line that says what took the time."""
    command = (*GPUBENCH, *SWEEP, "--force", "-o", path, *words)
    ended = child(command, err=subprocess.PIPE, **variables)  # type: ignore[arg-type]
    phases = next(filter(PHASES.match, ended.err.splitlines()), "")
    return {f"{name}_s": ended.wall_s, f"{name}_phases": phases}


def sweep_with_a_kill(path: Path) -> None:
    """Sweep on all GPUs, and kill a Dask worker in the middle."""
    partial = path.with_name(f"{path.name}.partial")
    with subprocess.Popen([*GPUBENCH, *SWEEP, "--on", "local", "-o", path]) as sweep:
        while not partial.exists() or partial.read_bytes().count(b"\n") <= KILL_AFTER:
            if sweep.poll() is not None:
                sys.exit("the sweep ended before a worker was killed")
            sleep(0.1)
        children = psutil.Process(sweep.pid).children()
        next(process for process in children if "spawn_main" in " ".join(process.cmdline())).kill()


def timed(path: Path) -> int:
    """Return the number of points that have a time."""
    return sum(row.status == "ok" for row in read(path))


def fleet(folder: Path) -> dict[str, Any]:
    """Run fleet once, and return its outcome. Runs of one folder share a store."""
    words = ("fleet", "--on", "local", "--json", "--force", "-o", folder / "fleet.csv")
    ended = gpubench(*words, GPUBENCH_STORE=str(folder / "store"))
    devices = json.loads(ended.out)["devices"]
    return {
        "exit": ended.code,
        "wall_s": ended.wall_s,
        "verdicts": {device["uuid"]: device["verdict"] for device in devices},
        "reasons": {device["uuid"]: device["reasons"] for device in devices if device["reasons"]},
    }


def main() -> None:
    options = parser(__doc__, "many_gpus.json")
    asked = options.parse_args()
    devices = json.loads(gpubench("deviceinfo", "--device", "cuda", "--json").out)["devices"]
    uuids = [device["facts"]["uuid"] for device in devices]
    with tempfile.TemporaryDirectory() as folder:
        single, every, killed = (Path(folder) / name for name in ("1.csv", "n.csv", "killed.csv"))
        sweep_with_a_kill(killed)  # compiles for the other sweeps too
        turns = [
            sweep("one_gpu", single, CUDA_VISIBLE_DEVICES=uuids[0])
            | sweep("all_gpus", every, "--on", "local")
            for _ in range(2)
        ]
        compared = gpubench("diff", single, every)
        fleets = [fleet(Path(folder)) for _ in range(2)]
        busy = subprocess.Popen(
            (sys.executable, "-c", OTHER_JOB), env=os.environ | {"CUDA_VISIBLE_DEVICES": uuids[-1]}
        )
        try:
            sleep(5)  # until the other program has compiled and begun
            beside = fleet(Path(folder))
        finally:
            busy.kill()
        result = {
            "device": devices[0]["name"],
            "gpus": len(devices),
            "turns": turns,
            "speeds": {row.device_uuid: row.percent_of_devices for row in read(every)},
            "diff": {"exit": compared.code, "says": compared.out.partition("\n")[0]},
            "timed": timed(single),
            "timed_after_a_kill": timed(killed),
            "fleets": fleets,
            "busy": uuids[-1],
            "fleet_beside_another_job": beside,
        }
    save(asked.output, result)


if __name__ == "__main__":
    main()
