"""Compare a sweep on all GPUs of this machine with one GPU, kill a worker, and run fleet twice.

    python benchmarks/many_gpus.py -o many_gpus.json

Needs two GPUs of one kind or more, and the extra `fleet`. docs/claims.md has the bounds.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import sleep
from typing import Any

import psutil
from shared import GPUBENCH, Ended, child, parser, save

from gpubench.results.row import read

SWEEP = ("sweep", "--sizes", "1024,2048", "--tiles", "1..32")

KILL_AFTER = 500
"""Number of measurements, of 1,480, after which a worker is killed."""


def gpubench(*words: str | Path, **variables: str) -> Ended:
    return child((*GPUBENCH, *words), **variables)  # type: ignore[arg-type]


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
    """Return the number of points with a time."""
    return sum(row.status == "ok" for row in read(path))


def main() -> None:
    options = parser(__doc__, "many_gpus.json")
    asked = options.parse_args()
    devices = json.loads(gpubench("deviceinfo", "--device", "cuda", "--json").out)["devices"]
    count = len(devices)
    with tempfile.TemporaryDirectory() as folder:
        single, every, killed = (Path(folder) / name for name in ("1.csv", "n.csv", "killed.csv"))
        sweep_with_a_kill(killed)  # compiles for the other sweeps too
        uuid = devices[0]["facts"]["uuid"]
        one_gpu_s = gpubench(*SWEEP, "-o", single, CUDA_VISIBLE_DEVICES=uuid).wall_s
        all_gpus_s = gpubench(*SWEEP, "--on", "local", "-o", every).wall_s
        compared = gpubench("diff", single, every)
        fleets: list[dict[str, Any]] = []
        for turn in (1, 2):
            words = ("fleet", "--on", "local", "--json", "-o", Path(folder) / f"fleet{turn}.csv")
            ended = gpubench(*words, GPUBENCH_STORE=str(Path(folder) / "store"))
            verdicts = {unit["uuid"]: unit["verdict"] for unit in json.loads(ended.out)["devices"]}
            fleets.append({"exit": ended.code, "wall_s": ended.wall_s, "verdicts": verdicts})
        result = {
            "device": devices[0]["name"],
            "gpus": count,
            "one_gpu_s": one_gpu_s,
            "all_gpus_s": all_gpus_s,
            "speeds": {row.device_uuid: row.percent_of_devices for row in read(every)},
            "diff": {"exit": compared.code, "says": compared.out.partition("\n")[0]},
            "timed": timed(single),
            "timed_after_a_kill": timed(killed),
            "fleets": fleets,
        }
    save(asked.output, result)


if __name__ == "__main__":
    main()
