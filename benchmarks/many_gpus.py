"""A sweep on all GPUs of this machine against one GPU; a killed worker; the fleet, twice.

    python benchmarks/many_gpus.py > results/h200/many_gpus.txt

Needs two GPUs of one kind or more, and the extra `fleet`. Ends with code 1 unless all of it holds:

- the README's sweep on all GPUs takes at most `0.1 + 1 / GPUs` of one GPU's wall time, rounded up
  to 0.6 for two and 0.35 for four;
- no figure differs from one GPU's by more than good GPUs do (`gpubench diff`, which knows them);
- with a worker killed in the middle, no point is missing;
- `gpubench fleet` takes under 60 s, and comes to the same verdicts twice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep

import psutil

from gpubench.row import read

SWEEP = ("sweep", "--sizes", "1024,2048", "--tiles", "1..32")
FLEET_LIMIT_S = 60
COMMAND = (sys.executable, "-m", "gpubench")


def gpubench(*words: str, gpus: str | None = None) -> tuple[int, float, str]:
    """Exit code, wall time and stdout of a command."""
    environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": gpus} if gpus else {})}
    started = perf_counter()
    ended = subprocess.run(
        [*COMMAND, *words], env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    return ended.returncode, perf_counter() - started, ended.stdout


def killed_in_the_middle(path: Path, points: int) -> int:
    """Kill a Dask worker once a third of the measurements is there; the points that have a time."""
    sweep = subprocess.Popen([*COMMAND, *SWEEP, "--on", "local", "-o", str(path)])
    partial = path.with_name(f"{path.name}.partial")
    while sweep.poll() is None:
        if partial.exists() and len(partial.read_bytes().splitlines()) > 5 * points / 3:
            children = psutil.Process(sweep.pid).children()
            workers = [one for one in children if "spawn_main" in " ".join(one.cmdline())]
            workers[0].kill()
            break
        sleep(0.1)
    sweep.wait()
    return sum(row.status == "ok" for row in read(path))


def main() -> int:
    devices = json.loads(gpubench("deviceinfo", "--device", "cuda", "--json")[2])["devices"]
    count = len(devices)
    print(f"{count} × {devices[0]['name']}")
    held: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as folder:
        one, all_of_them, killed = (
            Path(folder) / name for name in ("1.csv", "n.csv", "killed.csv")
        )
        gpubench(*SWEEP, "-o", str(Path(folder) / "warm.csv"))  # what is compiled is kept
        _, one_s, _ = gpubench(*SWEEP, "-o", str(one), gpus=devices[0]["facts"]["uuid"])
        _, all_s, _ = gpubench(*SWEEP, "--on", "local", "-o", str(all_of_them))
        rows = read(all_of_them)
        print(f"one GPU {one_s:.1f} s; {count} GPUs {all_s:.1f} s: {all_s / one_s:.2f} of it")
        held["wall time"] = all_s <= (0.1 + 1 / count) * one_s
        speeds = {row.device_uuid: row.percent_of_devices for row in rows}
        print(f"speed of the GPUs at common points, percent of the median: {speeds}")
        code, _, text = gpubench("diff", str(one), str(all_of_them))
        print(text.partition("\n")[0])
        held["figures as on one GPU"] = code == 0
        timed = sum(row.status == "ok" for row in read(one))
        survived = killed_in_the_middle(killed, timed)
        print(f"with a worker killed: {survived} of {timed} points have a time")
        held["nothing lost"] = survived == timed
        os.environ["GPUBENCH_STORE"] = str(Path(folder) / "store")
        verdicts = []
        for turn in ("first", "second"):
            path = Path(folder) / f"{turn}.csv"
            code, spent_s, text = gpubench("fleet", "--on", "local", "--json", "-o", str(path))
            found = json.loads(text)["devices"]
            verdicts.append({device["uuid"]: device["verdict"] for device in found})
            print(f"fleet: exit {code} after {spent_s:.1f} s: {verdicts[-1]}")
            held[f"{turn} fleet in time"] = spent_s < FLEET_LIMIT_S
        held["same verdicts"] = verdicts[0] == verdicts[1]
    for what, holds in held.items():
        print(f"{'holds' if holds else 'FAILS'}: {what}")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
