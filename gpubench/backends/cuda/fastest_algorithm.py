"""Chooses the fastest of a library's algorithms by a race, and keeps the result on disk."""

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter

from gpubench.cache import cache_file, keep_value, kept
from gpubench.errors import LaunchError

ROUNDS = 25
"""Maximum number of rounds. A round takes a sample of each algorithm that is still in the race. On
recorded samples of 17 problems, the chosen algorithm was at most 0.9 % slower than the fastest,
with 15 rounds and with 25 rounds (docs/decisions/0017)."""

LEAST_ROUNDS = 3  # clearly slower algorithms leave the race after this number of rounds

LIMIT_S = 1.0  # wall time after which no further round starts, and no further algorithm is tried
SAMPLE_US = 100.0  # minimum duration of a sample of the fastest algorithm

Sample = Callable[[int, int], float]
"""Function that takes the index of an algorithm and the number of launches, and returns
microseconds per launch. Raises LaunchError for an algorithm that cannot run."""


def choose_algorithm(
    names: Sequence[str], facts: Mapping[str, object], sample: Sample, max_launches: int
) -> tuple[int, str]:
    """Return the index of the fastest algorithm, and how it was chosen.

    The winner of a race is kept on disk under `facts`, which contain everything that affects the
    race. All processes then use the same algorithm. If the cache is not writable, the library's
    first choice that can run is used, because another process might choose differently. Raises
    LaunchError if no algorithm can run.
    """
    file = cache_file("algorithms", facts)
    if (earlier := kept(file, str)) in names:
        return names.index(earlier), "tuned"
    winner = race(len(names), sample, max_launches)
    if (earlier := kept(file, str)) in names:  # another process was faster
        return names.index(earlier), "tuned"
    if not keep_value(file, names[winner]):
        return _first_that_runs(len(names), sample), "not tuned: the cache is not writable"
    return winner, "tuned"


def _first_that_runs(algorithms: int, sample: Sample) -> int:
    for algorithm in range(algorithms):
        with suppress(LaunchError):
            sample(algorithm, 1)
            return algorithm
    raise _none_runs(algorithms)


def _none_runs(algorithms: int) -> LaunchError:
    return LaunchError(f"none of the library's {algorithms} algorithms can run")


def race(
    algorithms: int, sample: Sample, max_launches: int, clock: Callable[[], float] = perf_counter
) -> int:
    """Return the index of the algorithm with the lowest median time.

    Each round has a random order of the algorithms, and all samples have the same number of
    launches. So a change of clock or temperature affects all algorithms alike. If the first
    launches together take `LIMIT_S`, the remaining algorithms are not tried. Raises LaunchError if
    no algorithm can run.
    """
    deadline_s = clock() + LIMIT_S
    first_us: dict[int, float] = {}
    for algorithm in range(algorithms):
        if first_us and clock() >= deadline_s:
            break
        with suppress(LaunchError):
            first_us[algorithm] = sample(algorithm, 1)
    if not first_us:
        raise _none_runs(algorithms)
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
