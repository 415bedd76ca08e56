"""Compare a sweep on all GPUs of this machine with one GPU, kill a worker, and run fleet twice.

    python benchmarks/many_gpus.py -o many_gpus.json

Needs two GPUs of one kind or more, and the extra `fleet`. Exits 1 unless all of this is true:

- the README's sweep on all GPUs takes at most `0.1 + 1 / GPUs` of the wall time on one GPU;
- `gpubench diff` confirms no regression between one GPU and all;
- no point is missing if a worker is killed in the middle;
- `gpubench fleet` takes less than 60 s, and returns the same verdicts twice.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import sleep
from typing import Any

import psutil
from shared import GPUBENCH, Ended, child, parser, save, verdict

from gpubench.results.row import read

SWEEP = ("sweep", "--sizes", "1024,2048", "--tiles", "1..32")
FLEET_LIMIT_S = 60

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


def main() -> int:
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
    outcomes = (
        verdict(
            all_gpus_s / one_gpu_s <= 0.1 + 1 / count, f"{all_gpus_s / one_gpu_s:.2f} of one GPU"
        ),
        verdict(compared.code == 0, f"figures as on one GPU: {result['diff']['says']}"),
        verdict(result["timed"] == result["timed_after_a_kill"], "no point lost by the kill"),
        verdict(max(fleet["wall_s"] for fleet in fleets) < FLEET_LIMIT_S, "fleet in time"),
        verdict(fleets[0]["verdicts"] == fleets[1]["verdicts"], "same verdicts"),
    )
    return int(not all(outcomes))


if __name__ == "__main__":
    sys.exit(main())
