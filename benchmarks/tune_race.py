"""`gpubench tune` against a sweep of all configurations, and Kernel Tuner on the recorded times.

    python benchmarks/tune_race.py --output results/h200/tune
    python benchmarks/tune_race.py --device cpu cpu_tile:512:float32 --where "edge <= 64"

A space is VARIANT:SIZE:DTYPE. Each is swept whole (ten rounds, and what a sweep's five take of them
is what tune is compared with), tuned live twice, and raced eight times on the recorded rounds: what
a visit to a configuration takes is drawn from its rounds, in a new order each time. Kernels are
compiled before anything is timed. Where Kernel Tuner is installed (`pip install kernel-tuner`), its
strategies search the recorded times in its simulation mode. Needs two minutes a space on an H200;
exit code 1: the winner was more than 1 % slower than the exhaustive best, or tune took more than a
fifth of the time.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from gpubench import row as table
from gpubench.commands.tune.race import Race
from gpubench.commands.tune.run import Settings, groups, picks, read_settings, tune
from gpubench.commands.tune.schedule import VISIT_S, entrants
from gpubench.measure.session import Outcome, run
from gpubench.measure.worker import Worker
from gpubench.options import read_sweep
from gpubench.plan.registry import choose
from gpubench.row import Row
from gpubench.view.progress import progress

SPACES = (
    "wgmma_cluster:4096:bfloat16",
    "wgmma_cluster:1000:bfloat16",
    "packed_panels:4096:float32",
    "vectorized:4096:float32",
    "pipelined:4096:float32",
)
RECORDED_ROUNDS, SWEEPS_ROUNDS = 10, 5
LIVE, REPLAYS = 2, 8
MOST_SLOWER, MOST_TIME = 0.01, 0.2
STRATEGIES = ("brute_force", "random_sample", "genetic_algorithm", "diff_evo", "dual_annealing")
KERNEL_TUNERS_LAUNCHES = 7


def exhaustive(settings: Settings, worker: Worker, watcher: Any) -> Outcome:
    """Every configuration, as `gpubench sweep` measures it, in twice its rounds."""
    options = {n: t for n, t in settings.sweep.options.items() if n not in {"within", "where"}}
    sweep = read_sweep(options | {"rounds": RECORDED_ROUNDS})
    (variant,) = choose(sweep.op, worker.device.backend, sweep.variants, sweep.kernels)
    (space,) = (settings.space(variant),)
    tiles = entrants(space, sweep.seed)[0]
    return run(replace(sweep, tiles=tuple(map(str, tiles))), worker, watcher)


def device_s(rows: Sequence[Row]) -> float:
    """Device time of all samples."""
    return sum(row.device_s or 0.0 for row in rows)


def replayed(rows: Sequence[Row], within: float, seed: int) -> tuple[str, float, list[str]]:
    """A race on recorded rounds: the winner's tile, the device time of its visits, the group."""
    rng = np.random.default_rng(seed)
    rounds = [[float(text) for text in (row.round_medians_us or "").split(";")] for row in rows]
    order = [rng.permutation(len(of_row)) for of_row in rounds]
    race = Race(len(rows), within, seed)
    race.enter(len(rows))
    spent_us, times = 0.0, [[] for _ in rows]
    while not race.over:
        for number in tuple(race.waiting):
            at = order[number][(race.round - 1) % len(order[number])]
            time_us = rounds[number][at]
            times[number].append(time_us)
            spent_us += max(2 * time_us, VISIT_S * 1e6)
            race.add(number, time_us)
        race.judge()
    winner = min(race.racing, key=lambda number: statistics.median(times[number]))
    return rows[winner].tile, spent_us / 1e6, [rows[number].tile for number in race.racing]


def kernel_tuners(rows: Sequence[Row], seed: int) -> list[tuple[str, int, float]]:
    """What Kernel Tuner's strategies need on the recorded times until they are within 1 %.

    (strategy, configurations measured, device seconds of its 7 launches each), one at a time.
    """
    import kernel_tuner

    names = [f"P{at}" for at in range(len(numbers(rows[0].tile)))]
    configs = {numbers(row.tile): (row.median_us or math.inf) / 1e3 for row in rows}
    values = {name: sorted({tile[at] for tile in configs}) for at, name in enumerate(names)}
    best_ms = min(configs.values())
    found = []
    for strategy in STRATEGIES:
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
            cache = Path(folder) / "cache.json"
            cache.write_text(json.dumps(cache_of(names, values, configs)), encoding="utf-8")
            np.random.seed(seed)  # noqa: NPY002 # what Kernel Tuner draws from
            try:
                results, _ = kernel_tuner.tune_kernel(
                    "recorded",
                    "__global__ void recorded() {}",
                    1,
                    [],
                    values,
                    restrictions=[f"({', '.join(names)},) in {tuple(configs)}"],
                    strategy=strategy,
                    simulation_mode=True,
                    cache=str(cache),
                    quiet=True,
                )
            except Exception as error:  # of a strategy that does not take such a space
                print(f"{strategy}: {type(error).__name__}: {error}")
                continue
        spent_ms, count = 0.0, 0
        for result in results:
            time_ms = configs[tuple(result[name] for name in names)]
            spent_ms, count = spent_ms + KERNEL_TUNERS_LAUNCHES * time_ms, count + 1
            if time_ms <= best_ms * (1 + MOST_SLOWER):
                break
        found.append((strategy, count, spent_ms / 1e3))
    return found


def numbers(tile: str) -> tuple[int, ...]:
    """A tile's values as numbers; a text such as `2x1` becomes two."""
    return tuple(map(int, re.findall("[0-9]+", tile)))


def cache_of(
    names: Sequence[str], values: dict[str, list[int]], configs: dict[tuple[int, ...], float]
) -> dict[str, Any]:
    """Kernel Tuner's cache file with recorded times."""
    took = dict.fromkeys(
        ("compile_time", "verification_time", "strategy_time", "framework_time"), 0.0
    )
    return {
        "device_name": "recorded",
        "kernel_name": "recorded",
        "problem_size": 1,
        "tune_params_keys": list(names),
        "tune_params": values,
        "objective": "time",
        "cache": {
            ",".join(map(str, tile)): dict(zip(names, tile, strict=True))
            | took
            | {
                "time": time_ms,
                "times": [time_ms] * KERNEL_TUNERS_LAUNCHES,
                "benchmark_time": KERNEL_TUNERS_LAUNCHES * time_ms,
                "timestamp": "2000-01-01 00:00:00",
            }
            for tile, time_ms in configs.items()
        },
    }


def race_space(text: str, arguments: argparse.Namespace) -> bool:
    """Sweep, tune and replay one space; whether tune was good enough."""
    name, size, dtype = text.split(":")
    settings = read_settings(
        {
            "variants": name,
            "sizes": size,
            "dtypes": dtype,
            "device": arguments.device,
            "where": arguments.where,
        }
    )
    with progress() as watcher, Worker(settings.sweep.device, settings.sweep.timer) as worker:
        tune(settings, worker, watcher, output=None)  # compiles
        everything = exhaustive(settings, worker, watcher)
        rows = [row for row in everything.rows if row.median_us]
        share = SWEEPS_ROUNDS / RECORDED_ROUNDS
        whole_s, whole_device_s = everything.wall_s * share, device_s(rows) * share
        times_us = {row.tile: row.median_us or math.inf for row in rows}
        best = min(times_us, key=lambda tile: times_us[tile])
        print(f"\n## {text}: {len(rows)} configurations on {worker.device.name}\n")
        print(
            "| | winner | slower than the best | wall time | device time | group | holds the best |"
        )
        print("| --- " * 7 + "|")
        print(f"| all, {SWEEPS_ROUNDS} rounds | {best} | | {whole_s:.1f} s | "
              f"{whole_device_s:.2f} s | | |")  # fmt: skip
        good = True

        def line(
            kind: str, tile: str, wall_s: float | None, spent_s: float, group: list[str]
        ) -> bool:
            slower, held = times_us[tile] / times_us[best] - 1, "yes" if best in group else "no"
            wall = "" if wall_s is None else f"{wall_s:.1f} s ({wall_s / whole_s:.0%})"
            device = f"{spent_s:.2f} s ({spent_s / whole_device_s:.0%})"
            cells = (kind, tile, f"{slower:.2%}", wall, device, str(len(group)), held)
            print(f"| {' | '.join(cells)} |", flush=True)
            fast = max((wall_s or 0.0) / whole_s, spent_s / whole_device_s) <= MOST_TIME
            return fast and slower <= MOST_SLOWER

        for number in range(LIVE):
            tuned = tune(settings, worker, watcher, output=None)
            (group,) = groups(tuned.race.rows)
            seen_s = device_s(tuned.race.rows)
            (variant,) = choose(
                settings.sweep.op, worker.device.backend, (name,), settings.sweep.kernels
            )
            fastest = picks(group, {variant: settings.space(variant)})[0].tile
            left = [row.tile for row in group]
            good &= line(f"tune, live {number + 1}", fastest, tuned.race.wall_s, seen_s, left)
        for seed in range(REPLAYS):
            winner, spent_s, left = replayed(rows, settings.within, seed)
            good &= line(f"tune, replayed {seed + 1}", winner, None, spent_s, left)
    try:
        for strategy, count, spent_s in kernel_tuners(rows, seed=0):
            print(f"| Kernel Tuner, {strategy}, to within 1 % | | | | {spent_s:.2f} s, "
                  f"{count} configurations | | |")  # fmt: skip
    except ImportError as error:
        print(f"\nKernel Tuner is not installed: {error}")
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        table.write(everything.rows, arguments.output / f"{text.replace(':', '-')}.csv")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spaces", nargs="*", default=SPACES, metavar="VARIANT:SIZE:DTYPE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--where")
    parser.add_argument("--output", type=Path, help="a directory for the recorded rounds")
    arguments = parser.parse_args()
    started = perf_counter()
    good = [race_space(space, arguments) for space in arguments.spaces]
    print(f"\n{perf_counter() - started:.0f} s in all")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
