"""What is measured next, decided from what is known: rounds over all points, and what is left."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gpubench.model import Measurement, Point, Status, Timing

Known = Mapping[Point, Sequence[Measurement]]
"""What came of each point so far, oldest first. It grows while a sweep runs."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A point to measure now."""

    point: Point
    name: str = ""
    """Which visit it is, for the progress display: `round 2/3`."""

    visits_left: int = 0
    """Visits that are still to come, this one among them."""

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
        forecast = Forecast(
            {point: point.problem for point in self._points}, rounds, self._timing.budget_s
        )
        remaining = list(self._points)
        for number in range(1, rounds + 1):
            self._order.shuffle(remaining)
            fresh = number > 1
            for point in tuple(remaining):
                cost_s = None
                if len(known[point]) < number:
                    started = self._clock()
                    yield Visit(
                        point=point,
                        name=f"round {number}/{rounds}" if rounds > 1 else "",
                        visits_left=forecast.visits_left,
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


Item = TypeVar("Item", bound=Hashable)


class Forecast(Generic[Item]):
    """Learns what each item (a point) costs as it is visited, once a round.

    An item not visited yet is expected to cost the mean of the first visits of its group (points of
    a size cost alike), or of all while its group has none.
    """

    def __init__(
        self,
        groups: Mapping[Item, Hashable],
        rounds: int,
        budget_s: float | None = None,
    ) -> None:
        self._groups = groups
        self._visits_left = dict.fromkeys(groups, rounds)
        self._cost_s: dict[Item, float] = {}
        self._known_s = 0.0
        """Of the visits left to points in `_cost_s`."""

        self._unknown_visits: Counter[Hashable] = Counter()
        """Visits left to the other points, by group."""

        for group in groups.values():
            self._unknown_visits[group] += rounds
        self._first_s: defaultdict[Hashable, float] = defaultdict(float)
        self._firsts: Counter[Hashable] = Counter()
        self._budget_s = budget_s
        self._spent_s = 0.0
        self.visits_left = rounds * len(groups)
        """Visits that are still to come."""

    @property
    def left_s(self) -> float:
        """Seconds until the last visit is done; 0 while nothing is known."""
        if not self._cost_s:
            return 0.0
        mean_s = sum(self._first_s.values()) / self._firsts.total()
        return self._known_s + sum(
            visits * (self._first_s[group] / self._firsts[group] if self._firsts[group] else mean_s)
            for group, visits in self._unknown_visits.items()
        )

    @property
    def share_s(self) -> float | None:
        """Seconds the next visit may take of the budget; None without a budget.

        What is left is shared equally among the visits left, so what one saves the others get.
        """
        if self._budget_s is None:
            return None
        return max(0.0, self._budget_s - self._spent_s) / max(1, self.visits_left)

    def visited(self, item: Item, seconds: float | None, *, again: bool) -> None:
        """Record a visit, None for one of an earlier run; without `again` it is the item's last."""
        self._count(item, -1)
        if seconds is not None:
            if item not in self._cost_s:
                self._first_s[self._groups[item]] += seconds
                self._firsts[self._groups[item]] += 1
            self._cost_s[item] = seconds
            self._spent_s += seconds
        self._visits_left[item] = self._visits_left[item] - 1 if again else 0
        self._count(item, 1)

    def _count(self, item: Item, sign: int) -> None:
        """Take the visits left to an item out of the totals, or put them back in."""
        visits = sign * self._visits_left[item]
        self.visits_left += visits
        if item in self._cost_s:
            self._known_s += visits * self._cost_s[item]
        else:
            self._unknown_visits[self._groups[item]] += visits


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
