"""A sweep on all GPUs of this machine against one GPU; a killed worker; the fleet, twice.

    python benchmarks/many_gpus.py > results/h200/many_gpus_2.txt

Needs two GPUs of one kind or more, and the extra `fleet`. Exits 1 unless all of it holds:

- the README's sweep on all GPUs takes at most `0.1 + 1 / GPUs` of one GPU's wall time, rounded up
  to 0.6 for two and 0.35 for four;
- no figure differs from one GPU's by more than good GPUs do (`gpubench diff`, which knows them);
- with a worker killed in the middle, no point is missing;
- `gpubench fleet` takes under 60 s, and comes to the same verdicts twice.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import sleep

import psutil
from shared import GPUBENCH, Ended, child, verdict

from gpubench.results.row import read

SWEEP = ("sweep", "--sizes", "1024,2048", "--tiles", "1..32")
FLEET_LIMIT_S = 60

KILLED_AFTER = 500
"""Measurements, of 1,480."""


def gpubench(*words: str | Path, **variables: str) -> Ended:
    return child((*GPUBENCH, *words), **variables)  # type: ignore[arg-type]


def timed_despite_a_kill(path: Path) -> int:
    """Kill a Dask worker in the middle of the sweep; the points that have a time."""
    partial = path.with_name(f"{path.name}.partial")
    with subprocess.Popen([*GPUBENCH, *SWEEP, "--on", "local", "-o", path]) as sweep:
        while sweep.poll() is None:
            if partial.exists() and len(partial.read_bytes().splitlines()) > KILLED_AFTER:
                children = psutil.Process(sweep.pid).children()
                workers = [one for one in children if "spawn_main" in " ".join(one.cmdline())]
                workers[0].kill()
                break
            sleep(0.1)
        else:
            sys.exit("the sweep ended before a worker was killed")
    return sum(row.status == "ok" for row in read(path))


def main() -> int:
    devices = json.loads(gpubench("deviceinfo", "--device", "cuda", "--json").out)["devices"]
    count = len(devices)
    print(f"{count} × {devices[0]['name']}")
    held = []
    with tempfile.TemporaryDirectory() as folder:
        one, every, killed = (Path(folder) / name for name in ("1.csv", "n.csv", "killed.csv"))
        uuid = devices[0]["facts"]["uuid"]
        survived = timed_despite_a_kill(killed)  # and what it compiled is kept
        one_s = gpubench(*SWEEP, "-o", one, CUDA_VISIBLE_DEVICES=uuid).wall_s
        every_s = gpubench(*SWEEP, "--on", "local", "-o", every).wall_s
        speeds = {row.device_uuid: row.percent_of_devices for row in read(every)}
        print(f"speed of the GPUs at common points, percent of the median: {speeds}")
        part, limit = every_s / one_s, 0.1 + 1 / count
        said = f"one GPU {one_s:.1f} s, {count} GPUs {every_s:.1f} s: {part:.2f} of it"
        held.append(verdict(part <= limit, f"{said}, at most {limit:.2f}"))
        compared = gpubench("diff", one, every)
        first = compared.out.partition("\n")[0]
        held.append(verdict(compared.code == 0, f"figures as on one GPU: {first}"))
        timed = sum(row.status == "ok" for row in read(one))
        said = f"with a worker killed: {survived} of {timed} points have a time"
        held.append(verdict(survived == timed, said))
        verdicts = []
        for turn in ("first", "second"):
            words = ("fleet", "--on", "local", "--json", "-o", Path(folder) / f"{turn}.csv")
            ended = gpubench(*words, GPUBENCH_STORE=str(Path(folder) / "store"))
            found = json.loads(ended.out)["devices"]
            verdicts.append({device["uuid"]: device["verdict"] for device in found})
            print(f"{turn} fleet: exit {ended.code}, {verdicts[-1]}")
            said = f"{turn} fleet in {ended.wall_s:.1f} s, under {FLEET_LIMIT_S}"
            held.append(verdict(ended.wall_s < FLEET_LIMIT_S, said))
        held.append(verdict(verdicts[0] == verdicts[1], "same verdicts"))
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
