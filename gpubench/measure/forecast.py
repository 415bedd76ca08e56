"""How long the rest of a sweep takes, and each visit's share of a budget. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from gpubench.model import Timing


class Forecast:
    """Learns what each point costs as it is visited, once a round.

    A point not visited yet is expected to cost the mean of the others' first visits.
    """

    def __init__(
        self, points: Iterable[Hashable], rounds: int, budget_s: float | None = None
    ) -> None:
        self._visits_left = dict.fromkeys(points, rounds)
        self._cost_s: dict[Hashable, float] = {}
        self._budget_s = budget_s
        self._spent_s = 0.0
        self._first_visits_s = 0.0
        self._known_s = 0.0
        self._unknown_visits = self._all_visits = rounds * len(self._visits_left)

    @property
    def left_s(self) -> float:
        """Seconds until the last visit is done; 0 while nothing is known."""
        if not self._cost_s:
            return 0.0
        mean_s = self._first_visits_s / len(self._cost_s)
        return self._known_s + self._unknown_visits * mean_s

    @property
    def share_s(self) -> float | None:
        """Seconds the next visit may take of the budget; None without a budget.

        What is left is shared equally among the visits left, so what one saves the others get.
        """
        if self._budget_s is None:
            return None
        return max(0.0, self._budget_s - self._spent_s) / max(1, self._all_visits)

    def visited(self, point: Hashable, seconds: float, *, again: bool) -> None:
        """Record a visit; without `again` the point's later rounds are dropped."""
        visits = self._visits_left[point]
        if point in self._cost_s:
            self._known_s -= visits * self._cost_s[point]
        else:
            self._unknown_visits -= visits
            self._first_visits_s += seconds
        self._cost_s[point] = seconds
        self._visits_left[point] = visits - 1 if again else 0
        self._all_visits -= visits - self._visits_left[point]
        self._known_s += self._visits_left[point] * seconds
        self._spent_s += seconds


def sampling_s(timing: Timing, launch_s: float = 0.0) -> tuple[float, float]:
    """Seconds that the samples of one visit take, at the least and at the most, by the policy.

    `launch_s` is what a launch takes at the least, as far as that is known. At the most: a round's
    part of the wall time, unless its fewest samples take longer.
    """
    if launch_s > timing.slow_launch_s:
        least = timing.round_few_samples * launch_s
    else:
        least = max(timing.round_device_s, timing.round_samples * launch_s)
    return least, max(least, timing.round_wall_s)
