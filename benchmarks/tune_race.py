"""`gpubench tune` against a sweep of all configurations, and Kernel Tuner beside both.

    python benchmarks/tune_race.py race wgmma_cluster:4096:bfloat16 -o rounds.csv
    python benchmarks/tune_race.py race cpu_tile:512:float32 --device cpu --where "edge <= 64"
    python benchmarks/tune_race.py replay results/h200/tune/*.csv.gz > results/h200/tune_replayed.md
    python benchmarks/tune_race.py wall

`race` takes a space, VARIANT:SIZE:DTYPE. It is swept whole (ten rounds, and what a sweep's five
take of them is what tune is compared with), tuned live twice, and raced eight times on the recorded
rounds: a visit to a configuration takes the time of one of its rounds, drawn anew for each visit.
Kernels are compiled before anything is timed. Where Kernel Tuner is installed (`pip install
kernel-tuner`), its strategies search the recorded times in its simulation mode. Exits 1 if a winner
is more than 1 % slower than the exhaustive best, or tune took more than a fifth of the time.

`replay` takes CSVs of recorded rounds, and races each a hundred times. It needs no GPU. Exits 1 if
the groups of a space miss the exhaustive best in over 5 % of the races.

`wall` has gpubench and Kernel Tuner, with its defaults (7 launches, no interval), time the 64
configurations of `shared_tile` 1..32 at 1024 and 2048, each in a new process. gpubench verifies
every point and samples to ±0.5 %. Exits 1 if gpubench takes longer.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from shared import GPUBENCH, child, markdown, rounds, verdict

from gpubench.commands.tune.run import WITHIN, groups, picks, read_settings, tune
from gpubench.commands.tune.schedule import VISIT_S, entrants
from gpubench.engine.pool import local_pool
from gpubench.engine.prepare import prepare
from gpubench.engine.run import run
from gpubench.options import read_sweep
from gpubench.plan.ranges import parse_fraction
from gpubench.plan.registry import KERNELS, choose
from gpubench.results import row as table
from gpubench.results.row import Row
from gpubench.stats.race import Race
from gpubench.view.progress import progress

RECORDED_ROUNDS, SWEEPS_ROUNDS = 10, 5
LIVE, REPLAYS = 2, 8
RACES, HELD = 100, 0.95
MOST_SLOWER, MOST_TIME = 0.01, 0.2
STRATEGIES = ("brute_force", "random_sample", "genetic_algorithm", "diff_evo", "dual_annealing")
TUNERS_LAUNCHES = 7
SIZES, EDGES = (1024, 2048), range(1, 33)


def race(space: str, device: str, where: str | None, output: Path | None) -> bool:
    """Sweep, tune and replay one space; whether tune was good enough."""
    name, size, dtype = space.split(":")
    asked = {"variants": name, "sizes": size, "dtypes": dtype, "device": device}
    settings = read_settings(asked | {"where": where})
    with progress() as watcher, local_pool(settings.sweep.device, settings.sweep.timer) as pool:
        tune(settings, pool, watcher, output=None)  # compiles
        sweep = read_sweep(asked | {"rounds": RECORDED_ROUNDS})
        (variant,) = choose(sweep.op, pool.device.backend, sweep.variants, sweep.kernels)
        spaces = {variant: settings.racing.space(variant)}
        tiles = tuple(map(str, entrants(spaces[variant], sweep.seed)[0]))
        everything = run(prepare(replace(sweep, tiles=tiles), pool.device), pool, watcher)
        live = [tune(settings, pool, watcher, output=None).race for _ in range(LIVE)]
    rows = [row for row in everything.rows if row.median_us]
    if output:
        table.write(everything.rows, output)
    times_us = {row.tile: row.median_us or math.inf for row in rows}
    best = min(times_us, key=lambda tile: times_us[tile])
    part = SWEEPS_ROUNDS / RECORDED_ROUNDS
    whole_s, whole_device_s = everything.wall_s * part, device_s(rows) * part
    good = True
    first = f"all, {SWEEPS_ROUNDS} rounds"
    lines = [[first, best, "", f"{whole_s:.1f} s", f"{whole_device_s:.2f} s", "", ""]]

    def add(kind: str, tile: str, wall_s: float | None, spent_s: float, left: list[str]) -> bool:
        slower, wall = times_us[tile] / times_us[best] - 1, (wall_s or 0.0) / whole_s
        spent = spent_s / whole_device_s
        cells = [kind, tile, f"{slower:.2%}", f"{wall_s:.1f} s ({wall:.0%})" if wall_s else ""]
        held = "yes" if best in left else "no"
        lines.append([*cells, f"{spent_s:.2f} s ({spent:.0%})", str(len(left)), held])
        return max(wall, spent) <= MOST_TIME and slower <= MOST_SLOWER

    for number, outcome in enumerate(live, 1):
        (group,) = groups(outcome.rows)
        fastest, left = picks(group, spaces)[0].tile, [row.tile for row in group]
        seen_s = device_s(outcome.rows)
        good &= add(f"tune, live {number}", fastest, outcome.wall_s, seen_s, left)
    for seed in range(REPLAYS):
        again = replayed(rows, settings.racing.within, seed)
        good &= add(f"tune, replayed {seed + 1}", again.winner, None, again.spent_s, again.group)
    for strategy, count, spent_s in kernel_tuners(rows, seed=0):
        name = f"Kernel Tuner, {strategy}, to within 1 %, {count} configurations"
        lines.append([name, "", "", "", f"{spent_s:.2f} s", "", ""])
    heading = ["", "winner", "slower", "wall time", "device time", "group", "holds the best"]
    print(f"## {space}: {len(rows)} configurations on {pool.device.name}\n")
    print(f"{markdown(heading, lines)}\n")
    limits = f"within {MOST_SLOWER:.0%} of the best, in at most {MOST_TIME:.0%} of the time"
    return verdict(good, f"{space}: every tune {limits}")


def device_s(rows: Sequence[Row]) -> float:
    """Device time of all samples."""
    return sum(row.device_s or 0.0 for row in rows)


class Replayed(NamedTuple):
    """A race on recorded rounds."""

    winner: str
    """Tile of the fastest of the group."""

    group: list[str]
    spent_s: float
    """Device time of its visits."""

    rounds: int
    visits: int


def replayed(rows: Sequence[Row], within: float, seed: int) -> Replayed:
    """Race the rows on their recorded rounds."""
    rng = np.random.default_rng(seed)
    recorded = [rounds(row) for row in rows]
    contest = Race(within, seed)
    contest.enter(len(rows))
    spent_us = 0.0
    times: list[list[float]] = [[] for _ in rows]
    while not contest.over:
        for number in tuple(contest.waiting):
            time_us = recorded[number][rng.integers(len(recorded[number]))]
            times[number].append(time_us)
            spent_us += max(2 * time_us, VISIT_S * 1e6)
            contest.add(number, time_us)
        contest.judge()
    winner = min(contest.racing, key=lambda number: statistics.median(times[number]))
    group = [rows[number].tile for number in contest.racing]
    visits = sum(map(len, times))
    return Replayed(rows[winner].tile, group, spent_us / 1e6, contest.round - 1, visits)


def replay(paths: Sequence[Path]) -> bool:
    """Race recorded spaces; whether the groups hold the best often enough."""
    lines, rates = [], []
    within = parse_fraction(WITHIN, "within")
    for path in paths:
        rows = [row for row in table.read(path) if row.median_us]
        times_us = {row.tile: row.median_us or math.inf for row in rows}
        best = min(times_us, key=lambda tile: times_us[tile])
        sweep_s = device_s(rows) * SWEEPS_ROUNDS / RECORDED_ROUNDS
        races = [replayed(rows, within, seed) for seed in range(RACES)]
        slower = [times_us[run.winner] / times_us[best] - 1 for run in races]
        held = sum(best in run.group for run in races)
        near = sum(part <= MOST_SLOWER for part in slower)
        group, passed = (
            statistics.median(values)
            for values in ((len(run.group) for run in races), (run.rounds for run in races))
        )
        visits, spent_s = (
            statistics.mean(values)
            for values in ((run.visits for run in races), (run.spent_s for run in races))
        )
        cells = [f"{rows[0].variant}:{rows[0].size}:{rows[0].compute_mode}", len(rows)]
        cells += [f"{held} of {RACES}", f"{near} of {RACES}", f"{max(slower):.2%}", f"{group:g}"]
        cells += [f"{passed:g}", f"{visits / len(rows):.1f}", f"{sweep_s:.2f} s"]
        lines.append([*cells, f"{spent_s:.2f} s ({spent_s / sweep_s:.0%})"])
        rates.append(held / RACES)
    heading = ["space", "configurations", "group holds the best", "winner within 1 %"]
    heading += ["slowest winner", "group, median", "rounds, median", "visits a configuration"]
    heading += ["device time of a sweep, 5 rounds", "of the race"]
    print(f"{markdown(heading, lines)}\n")
    limit = f"the group holds the best in at least {HELD:.0%} of {RACES} races"
    return verdict(min(rates) >= HELD, limit)


def kernel_tuners(rows: Sequence[Row], seed: int) -> Iterator[tuple[str, int, float]]:
    """What Kernel Tuner's strategies need on the recorded times until they are within 1 %.

    (strategy, configurations measured, device seconds of its 7 launches each), one at a time.
    """
    try:
        import kernel_tuner
    except ImportError as error:
        print(f"Kernel Tuner is not installed: {error}")
        return
    configs = {numbers(row.tile): (row.median_us or math.inf) / 1e3 for row in rows}
    names = [f"P{at}" for at in range(len(numbers(rows[0].tile)))]
    values = {name: sorted({tile[at] for tile in configs}) for at, name in enumerate(names)}
    for strategy in STRATEGIES:
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
            cache = Path(folder) / "cache.json"
            cache.write_text(cache_of(names, values, configs), encoding="utf-8")
            np.random.seed(seed)  # noqa: NPY002 # what Kernel Tuner draws from
            try:
                results, _ = kernel_tuner.tune_kernel(
                    *("recorded", "__global__ void recorded() {}", 1, [], values),
                    restrictions=[f"({', '.join(names)},) in {tuple(configs)}"],
                    strategy=strategy,
                    simulation_mode=True,
                    cache=str(cache),
                    quiet=True,
                )
            except Exception as error:  # of a strategy that does not take such a space
                sys.stderr.write(f"{strategy}: {type(error).__name__}: {error}\n")
                continue
        spent_ms = 0.0
        for count, result in enumerate(results, 1):
            time_ms = configs[tuple(result[name] for name in names)]
            spent_ms += TUNERS_LAUNCHES * time_ms
            if time_ms <= min(configs.values()) * (1 + MOST_SLOWER):
                yield strategy, count, spent_ms / 1e3
                break


def numbers(tile: str) -> tuple[int, ...]:
    """A tile's values as numbers; a text such as `2x1` becomes two."""
    return tuple(map(int, re.findall("[0-9]+", tile)))


def cache_of(
    names: Sequence[str], values: dict[str, list[int]], configs: dict[tuple[int, ...], float]
) -> str:
    """Kernel Tuner's cache file with recorded times."""
    others = ("compile_time", "verification_time", "strategy_time", "framework_time")
    took = dict.fromkeys(others, 0.0) | {"timestamp": "2000-01-01 00:00:00"}
    whole = dict.fromkeys(("device_name", "kernel_name"), "recorded") | {
        "problem_size": 1,
        "tune_params_keys": list(names),
        "tune_params": values,
        "objective": "time",
        "cache": {
            ",".join(map(str, tile)): dict(zip(names, tile, strict=True))
            | took
            | {"time": time_ms, "times": [time_ms] * TUNERS_LAUNCHES}
            | {"benchmark_time": TUNERS_LAUNCHES * time_ms}
            for tile, time_ms in configs.items()
        },
    }
    return json.dumps(whole)


def wall() -> bool:
    """Wall times for the 64 configurations."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "race.csv"
        own = child(
            (
                *(*GPUBENCH, "sweep", "--device", "cuda", "--variants", "shared_tile"),
                *("--sizes", ",".join(map(str, SIZES)), "--tiles", "1..32", "--rounds", "1"),
                *("--output", output),
            )
        )
        rows = table.read(output)
    tuner = child((sys.executable, __file__, "kernel-tuner"))
    if own.code or tuner.code:
        raise SystemExit(f"gpubench: exit {own.code}, Kernel Tuner: exit {tuner.code}")
    widest = max(row.half_interval or 0.0 for row in rows)
    precise = sum(row.stop_reason == "precise" for row in rows)
    print(f"Kernel Tuner: {tuner.wall_s:.1f} s; gpubench: {own.wall_s:.1f} s, {len(rows)} points")
    print(f"gpubench's intervals: widest ±{widest:.2%}, {precise} stopped as precise")
    return verdict(own.wall_s <= tuner.wall_s, "no more wall time than Kernel Tuner")


def run_kernel_tuner() -> bool:
    """Kernel Tuner with its defaults, in a process of its own."""
    import kernel_tuner

    source = (KERNELS / "gemm" / "shared_tile.cu").read_text(encoding="utf-8")
    for n in SIZES:
        rng = np.random.default_rng(2006)
        a, b = (rng.random((n, n), dtype=np.float32) for _ in range(2))
        kernel_tuner.tune_kernel(
            *("shared_tile<float, TILE_EDGE>", source, (n, n)),
            [a, b, np.zeros_like(a), *[np.int32(n)] * 3],
            {"TILE_EDGE": list(EDGES)},
            grid_div_x=["TILE_EDGE"],
            grid_div_y=["TILE_EDGE"],
            block_size_names=["TILE_EDGE", "TILE_EDGE"],
            lang="CUPY",
            compiler_options=["--std=c++17"],
        )
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("race", "replay", "wall", "kernel-tuner"))
    parser.add_argument("spaces", nargs="*", metavar="VARIANT:SIZE:DTYPE or CSV")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--where")
    parser.add_argument("-o", "--output", type=Path, help="a CSV of the recorded rounds")
    asked = parser.parse_args()
    if asked.what == "race":
        (space,) = asked.spaces
        return int(not race(space, asked.device, asked.where, asked.output))
    if asked.what == "replay":
        return int(not replay([Path(name) for name in asked.spaces]))
    return int(not {"wall": wall, "kernel-tuner": run_kernel_tuner}[asked.what]())


if __name__ == "__main__":
    sys.exit(main())
