"""What is measured next, decided from what is known: rounds over all points, and what is left."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpubench.model import Measurement, Point, Status, Timing

Known = Mapping[Point, Sequence[Measurement]]
"""What came of each point so far, oldest first. It grows while a sweep runs."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A point to measure now."""

    point: Point
    name: str = ""
    """Which visit it is, for the progress display: `round 2/3`."""

    left_s: float = 0.0
    """Seconds until the last visit is expected to be done; 0 while nothing is known."""

    fresh: bool = False
    """Whether to measure in a fresh process: where code and data lie in memory changes times."""

    wall_limit_s: float | None = None
    """Wall time that a budget leaves for it; None: as long as the policy says."""


class Schedule(Protocol):
    """Decides what is measured next. A sweep ends when `next` gives None."""

    @property
    def visits(self) -> int:
        """How many visits there are at most, with those of a sweep that is resumed."""

    def next(self, known: Known) -> Visit | None:
        """The next visit. It is over when `next` is called again."""


class Rounds:
    """Every point once a round, each round in a new random order and in a fresh process.

    Interleaving spreads the machine's drift over all points alike. A point that was not `ok` is not
    measured again, and neither is what a resumed sweep measured before.
    """

    def __init__(
        self,
        points: Iterable[Point],
        timing: Timing,
        seed: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._points = list(points)
        self._timing = timing
        self._order = random.Random(seed)  # noqa: S311 # a shuffle, not a secret
        self._clock = clock
        self._visits: Iterator[Visit] | None = None

    @property
    def visits(self) -> int:
        """Points times rounds."""
        return len(self._points) * self._timing.rounds

    def next(self, known: Known) -> Visit | None:
        """The next point that lacks a round."""
        if self._visits is None:
            self._visits = self._all_visits(known)
        return next(self._visits, None)

    def _all_visits(self, known: Known) -> Iterator[Visit]:
        rounds = self._timing.rounds
        forecast = Forecast(self._points, rounds, self._timing.budget_s)
        remaining = list(self._points)
        for number in range(1, rounds + 1):
            self._order.shuffle(remaining)
            fresh = number > 1
            for point in tuple(remaining):
                cost_s = 0.0
                if len(known[point]) < number:
                    started = self._clock()
                    yield Visit(
                        point=point,
                        name=f"round {number}/{rounds}" if rounds > 1 else "",
                        left_s=forecast.left_s,
                        fresh=fresh,
                        wall_limit_s=forecast.share_s,
                    )
                    cost_s = self._clock() - started
                    fresh = False
                again = known[point][number - 1].status == Status.OK
                forecast.visited(point, cost_s, again=again)
                if not again:
                    remaining.remove(point)


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
