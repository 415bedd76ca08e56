"""Which of a library's algorithms is fastest: a race between them, and its outcome kept on disk."""

from __future__ import annotations

import hashlib
import json
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from gpubench.cache import keep, user_cache
from gpubench.errors import LaunchError

ROUNDS, LEAST_ROUNDS = 25, 3
"""A sample of each algorithm a round; from the third round on, those that are clearly slower leave.

On recorded samples of 17 problems the choice was at most 0.9 % slower than the fastest, with 15
rounds and with 25 (docs/decisions/0017).
"""

LIMIT_S = 1.0
"""Wall time after which no further round starts, and no further algorithm is tried."""

SAMPLE_US = 100.0
"""A sample of the fastest algorithm lasts at least this long."""

Sample = Callable[[int, int], float]
"""(number of the algorithm, launches) → its time per launch in microseconds. Raises LaunchError for
an algorithm that cannot run."""


def choose(
    names: Sequence[str], facts: Mapping[str, object], sample: Sample, max_launches: int
) -> tuple[int, str]:
    """The number of the fastest algorithm, from 0, and how it was chosen.

    By a race, whose winner is kept on disk by its name and `facts`, which are all that decides it:
    so every process uses the same. Where nothing can be kept the library's first choice is taken,
    as another process might choose another. Raises LaunchError if none can run.
    """
    if (kept := _recall(facts)) in names:
        return names.index(kept), "tuned"
    winner = race(len(names), sample, max_launches)
    if not _remember(facts, names[winner]):
        return 0, "not tuned: the cache is not writable"
    return winner, "tuned"


def race(
    algorithms: int,
    sample: Sample,
    max_launches: int,
    clock: Callable[[], float] = perf_counter,
) -> int:
    """The number of the fastest algorithm: the one with the lowest median.

    Rounds are in random order and samples have equally many launches, so that a change of clock or
    temperature meets all alike. Where launches are so slow that the first ones take `LIMIT_S`,
    later algorithms are not tried. Raises LaunchError if none can run.
    """
    deadline_s = clock() + LIMIT_S
    first_us: dict[int, float] = {}
    for algorithm in range(algorithms):
        if first_us and clock() >= deadline_s:
            break
        with suppress(LaunchError):
            first_us[algorithm] = sample(algorithm, 1)
    if not first_us:
        raise LaunchError(f"none of the library's {algorithms} algorithms can run")
    launches = max(1, min(max_launches, math.ceil(SAMPLE_US / min(first_us.values()))))
    times: dict[int, list[float]] = {algorithm: [] for algorithm in first_us}

    def median_us(algorithm: int) -> float:
        return statistics.median(times[algorithm] or [first_us[algorithm]])

    order = random.Random(0)  # noqa: S311 # an order, not a secret
    racing = list(first_us)
    for done in range(ROUNDS):
        if done >= LEAST_ROUNDS:
            slowest_us = max(times[min(racing, key=median_us)])
            racing = [algorithm for algorithm in racing if min(times[algorithm]) <= slowest_us]
        if len(racing) == 1 or clock() >= deadline_s:
            break
        order.shuffle(racing)
        for algorithm in racing:
            times[algorithm].append(sample(algorithm, launches))
    return min(racing, key=median_us)


def _recall(facts: Mapping[str, object]) -> str | None:
    """The algorithm kept for `facts`, or whatever a damaged file holds; None without a file."""
    try:
        return _file(facts).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return None


def _remember(facts: Mapping[str, object], algorithm: str) -> bool:
    """Keep the algorithm that won for `facts`; whether that worked."""
    return keep(_file(facts), f"{algorithm}\n{json.dumps(facts)}\n".encode())


def _file(facts: Mapping[str, object]) -> Path:
    name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return user_cache("algorithms", name)
