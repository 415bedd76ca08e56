"""Simulate `ab` for operating.py, with recorded pairs of sweeps.

`ab` compares the pairs that are measured so far at several looks, and may end at any look.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from common import ROOT

from gpubench.commands.diff.compare import compare
from gpubench.commands.diff.findings import Comparison, DiffVerdict, Key, Limits, PooledPoint
from gpubench.commands.diff.options import AB_CPU_PAIRS
from gpubench.stats import looks

PAIRS = ROOT / "results/cpu/ab_pairs.json"
"""Recorded sweeps of three sides in turns: a kernel, the same kernel, and the kernel made 10 %
slower."""

PIECE = 4
"""Number of consecutive pairs that are drawn together, because a host's clock drifts."""

SIX_MINUTES = 360.0

KEY = dict.fromkeys(Key._fields, "") | {"op": "gemm", "backend": "cpu", "dtype": "float32"}

HEADING = ["recorded", "pairs at most", "slower", "found", "other point called slower",
           "pairs, median", "minutes, median", "found in six minutes"]  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """The end of a comparison: the number of pairs, and the points that were found slower."""

    pairs: int
    slower: list[Key]


def in_turns(at: Callable[[int, float], Comparison], pairs: int) -> Ended:
    """Compare the pairs at each look as `ab` does, and return the end of the comparison.

    `at` takes a number of pairs and a false discovery rate, and compares the first pairs.
    """
    for number in (*looks.early_looks(pairs), pairs):
        last = number == pairs
        counts = (result := at(number, Limits.q * looks.share(number, pairs, is_last=last))).counts
        if last or counts[DiffVerdict.SLOWER] or not counts[DiffVerdict.AMBIGUOUS]:
            break
    return Ended(number, list(result.of(DiffVerdict.SLOWER)))


@cache
def recorded() -> list[dict[str, Any]]:
    """Return the recorded runs in the file `PAIRS`."""
    runs: list[dict[str, Any]] = json.loads(PAIRS.read_text(encoding="utf-8"))
    return runs


def on_cpu(disturbed: bool, slower: bool, rng: random.Random) -> tuple[Ended, float]:
    """Draw pairs of sweeps. Return the end of their comparison, and the seconds of the sweeps."""
    runs = [run["triples"] for run in recorded() if run["disturbed"] == disturbed]
    triples = list[dict[str, Any]]()
    while len(triples) < AB_CPU_PAIRS:
        run = rng.choice(runs)
        start = rng.randrange(len(run) - PIECE + 1)
        triples += run[start : start + PIECE]
    names = [rng.sample(["base", "same"], 2) for _ in triples]
    base = [triple[first] for triple, (first, _) in zip(triples, names, strict=False)]
    new = [
        triple["slow" if slower else second]
        for triple, (_, second) in zip(triples, names, strict=False)
    ]

    def at(number: int, q: float) -> Comparison:
        return compare(pooled(base[:number], 0), pooled(new[:number], 1), Limits(q=q))

    ended = in_turns(at, AB_CPU_PAIRS)
    return ended, sum(sweep["seconds"] for sweep in (*base[: ended.pairs], *new[: ended.pairs]))


def pooled(sweeps: Sequence[dict[str, Any]], place: int) -> dict[Key, PooledPoint]:
    """Return the points of sweeps on a CPU. A point has the times of all sweeps.

    `place` is 0 for the side whose sweeps come first in each pair, and 1 for the other side.
    """
    points = {}
    started = tuple(f"{2 * number + place:06}" for number in range(len(sweeps)))
    for name in sweeps[0]["us"]:
        variant, size = name.split()
        medians, shortest = zip(*(sweep["us"][name] for sweep in sweeps), strict=True)
        point = PooledPoint(on_cpu=True, is_blas=variant == "cpu_blas", shortest_us=shortest)
        lengths = dict.fromkeys("mnk", int(size))
        key = Key(**KEY | {"variant": variant, "compute_mode": "float32"} | lengths)
        points[key] = replace(point, sweeps_us=tuple((us,) for us in medians), started=started)
    return points


def line(disturbed: bool, slower: bool, number: int) -> list[object]:
    """Simulate comparisons on a CPU, and return the line of the table."""
    ended = [on_cpu(disturbed, slower, random.Random(seed)) for seed in range(number)]  # noqa: S311 # a simulation
    are_hits = [slower and any(key.variant == "loop" for key in each.slower) for each, _ in ended]
    wrong = [any(not slower or key.variant != "loop" for key in each.slower) for each, _ in ended]
    early = [
        hit and seconds < SIX_MINUTES for hit, (_, seconds) in zip(are_hits, ended, strict=True)
    ]
    return [
        f"16 CPUs, beside {'a busy process and ' if disturbed else ''}seven other runs",
        AB_CPU_PAIRS,
        "the kernel +10%" if slower else "nothing",
        f"{sum(are_hits)} of {number}" if slower else "",
        f"{sum(wrong)} of {number}",
        f"{statistics.median(each.pairs for each, _ in ended):g}",
        f"{statistics.median(seconds for _, seconds in ended) / 60:.1f}",
        f"{sum(early)} of {number}" if slower else "",
    ]
