"""Two sets of round medians: by what factor they differ, and how sure that is. Pure.

The tests are SciPy's, loaded when the first one is made.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cache


def p_value(base: Sequence[float], new: Sequence[float]) -> float:
    """Two-sided exact Mann-Whitney test that neither side tends to be slower.

    Mann and Whitney, Annals of Mathematical Statistics 18 (1947). The exact distribution is that
    without ties; ties narrow the true one, so they make the test cautious.
    """
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(base, new, alternative="two-sided", method="exact").pvalue)


def least_p(base_rounds: int, new_rounds: int) -> float:
    """The p-value when every round of one side is slower than every round of the other.

    No set of so many rounds can have a smaller one.
    """
    return min(1.0, 2 / math.comb(base_rounds + new_rounds, base_rounds))


def rounds_needed(rows: int, q: float) -> int:
    """The rounds a side with which a single shifted row among so many can be told from chance."""
    rounds = 1
    while least_p(rounds, rounds) > q / max(rows, 1):
        rounds += 1
    return rounds


def adjusted(p_values: Sequence[float]) -> list[float]:
    """p-values made comparable with a false discovery rate over all of them.

    Benjamini and Hochberg, Journal of the Royal Statistical Society B 57 (1995).
    """
    if not p_values:
        return []
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(p_values, method="bh")]


def log_interval(
    base: Sequence[float], new: Sequence[float], level: float | None
) -> tuple[float, float]:
    """Interval of log(new / base): the factors that the Mann-Whitney test does not reject.

    `level` is the test's, 0.01 for an interval of 99 %; None gives the range of all pairs. The ends
    are two of the logs of all pairs' ratios, in order of size (Moses; Hollander, Wolfe and Chicken,
    Nonparametric Statistical Methods, 3rd edition, section 4.3), whatever the distribution of the
    rounds.
    """
    pairs = sorted(math.log(after) - math.log(before) for before in base for after in new)
    beyond = 0 if level is None else _pairs_beyond(len(base), len(new), level)
    return pairs[beyond], pairs[-1 - beyond]


@cache
def _pairs_beyond(base_rounds: int, new_rounds: int, level: float) -> int:
    """How many pairs lie beyond either end of the interval: the largest U that is rejected."""
    rejected, kept = -1, base_rounds * new_rounds // 2
    while kept - rejected > 1:
        middle = (rejected + kept) // 2
        if _p_of_u(base_rounds, new_rounds, middle) <= level:
            rejected = middle
        else:
            kept = middle
    return max(rejected, 0)


def _p_of_u(base_rounds: int, new_rounds: int, u: int) -> float:
    """The p-value of sides of which `u` pairs are in the less usual order."""
    full, rest = divmod(u, base_rounds)
    above = [base_rounds] * full + [rest] + [0] * new_rounds  # base rounds below each new one
    new = [count - 0.5 for count in above[:new_rounds]]
    return p_value(range(base_rounds), new)


def log_ratio(base: Sequence[float], new: Sequence[float]) -> float:
    """log(median of new / median of base)."""
    return math.log(statistics.median(new)) - math.log(statistics.median(base))
