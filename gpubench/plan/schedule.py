"""Chooses the next point to measure, in rounds over all points. Forecasts the remaining time."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from gpubench.backends import backends
from gpubench.hardware.peaks import peak_gflops
from gpubench.model import Device, Measurement, Point, State, Status, Timing
from gpubench.plan.scrutiny import owner_of
from gpubench.plan.sweep import Sweep
from gpubench.text import counted

VISIT_S = 0.02  # time to bind a kernel to operands and to warm it up, before its samples

RoundsByPoint = Mapping[Point, Sequence[Measurement]]
"""Maps each point to its measurements so far, the oldest first. The mapping grows while a job
runs."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A point to measure next, and the conditions of this measurement."""

    point: Point
    name: str = ""  # the visit's name for the progress display: `round 2/3`
    visits_left: int = 0  # number of visits to come, including this visit
    left_s: float = 0.0  # expected seconds until the last visit is done; 0 before the first visit
    fresh: bool = False
    """Whether to measure in a fresh process. Times depend on where code and data lie in memory."""

    wall_limit_s: float | None = None
    """Wall time that the budget leaves for the visit. None means that `Timing` limits the time."""

    outcome: Measurement | None = None
    """A result that is known without a launch. This result is kept in place of a measurement."""


class Schedule(Protocol):
    """Decides which point one device measures next. A job ends after its schedule's last visit."""

    visits: int  # maximum number of visits, including the visits before a sweep was resumed
    endings: dict[Point, str]
    """Maps each race's point, without a tile, to the reason why the race ended. Empty if there are
    no races."""

    def each(self, rounds_by_point: RoundsByPoint) -> Iterator[Visit]:
        """Yield the visits. A visit is over when the next visit is requested."""

    def close(self) -> None:
        """Stop all work that the schedule does besides measurements."""


class Strategy(Protocol):
    """Makes a schedule for each device. A strategy is pickled when several devices share a job."""

    @property
    def is_race(self) -> bool:
        """Whether the points of a unit compete with each other.

        In a race, one device measures all points of a unit, each kernel is compiled when it is
        measured, and legal tiles that were not planned may join the race.
        """

    def schedule(self, points: Sequence[Point], sweep: Sweep, device: Device) -> Schedule:
        """Return the schedule of the points that one device measures."""

    def unit(self, point: Point) -> Hashable:
        """Return the unit to which a point belongs. One device measures all points of a unit."""

    def is_done(self, rounds: Sequence[Measurement], timing: Timing) -> bool:
        """Whether a point with these measurements needs no further measurement."""

    def common(self, points: Sequence[Point]) -> Sequence[Point]:
        """Return the points that every device measures, so that the devices can be compared."""


COMMON_POINTS = 3  # number of points that all devices measure if a sweep has no baseline


@dataclass(frozen=True, kw_only=True)
class InRounds:
    """Measures every point once per round. A sweep uses this strategy."""

    fresh: bool = True  # whether each round after the first starts in a fresh process
    whole_problems: bool = False
    """Whether one device measures all points of a problem, instead of all sizes of a kernel. With
    this option, a round measures the points of a problem one after the other."""

    baselines: Collection[str] = ()
    """Variants that are not measured further at a problem where all other variants have failed."""

    is_race = False

    def schedule(self, points: Sequence[Point], sweep: Sweep, _device: Device) -> Schedule:
        """Return a schedule that measures the points in rounds."""
        return Rounds(points, sweep.timing, sweep.seed, strategy=self)

    def unit(self, point: Point) -> Hashable:
        """Return the point's problem key if `whole_problems` is set, or else a key for its kernel.

        Each kernel that is a unit is compiled once, because one device measures its points.
        """
        if self.whole_problems:
            return point.problem_key
        return point.variant, point.tile, point.problem.dtype

    def is_done(self, rounds: Sequence[Measurement], timing: Timing) -> bool:
        """Whether a point failed, has all its rounds, or has used up its time.

        A point with slow launches is also done if its samples took `max_wall_s`, and if it has at
        least `few_samples`.
        """
        if len(rounds) >= timing.rounds or _failed(rounds):
            return True
        series = [taken.series for taken in rounds if taken.series]
        slow = any(taken.median_us > 1e6 * timing.slow_launch_s for taken in series)
        return (
            slow
            and rounds[0].point.state == State.BURST
            and sum(len(taken.times_us) for taken in series) >= timing.few_samples
            and sum(taken.device_s for taken in series) >= timing.max_wall_s
        )

    def common(self, points: Sequence[Point]) -> Sequence[Point]:
        """Return the points of the baselines, or a few other points if there is no baseline."""
        baselines = {point.variant.baseline for point in points} - {""}
        common = [p for p in points if {p.variant.name, p.variant.tunes} & baselines]
        return common or points[:: max(1, len(points) // COMMON_POINTS)][:COMMON_POINTS]


class Rounds:
    """Visits every point once per round, in a new random order and in a fresh process.

    Interleaving spreads the machine's drift evenly over all points. A point that is done is not
    measured again. A round that was measured before the sweep was resumed is not repeated.
    """

    def __init__(
        self,
        points: Iterable[Point],
        timing: Timing,
        seed: int,
        clock: Callable[[], float] = perf_counter,
        strategy: InRounds = InRounds(),
    ) -> None:
        self.endings: dict[Point, str] = {}
        self._points, self._timing, self._strategy = list(points), timing, strategy
        self._order = random.Random(seed)  # noqa: S311 # a shuffle, not a secret
        self._clock, self._began_s = clock, clock()
        self.visits = len(self._points) * timing.rounds

    def close(self) -> None:
        """Do nothing, because this schedule has no work other than measurements."""

    def _share_s(self, visits_left: int) -> float | None:
        """Return the wall time that the next visit may take, or None if there is no budget.

        The rest of the budget is divided equally among the visits that are left. So a visit that
        takes less time leaves more time to all later visits, and a long compilation leaves less.
        """
        budget_s = self._timing.budget_s
        if budget_s is None:
            return None
        return max(0.0, budget_s - (self._clock() - self._began_s)) / visits_left

    def each(self, rounds_by_point: RoundsByPoint) -> Iterator[Visit]:
        """Yield a visit for each round that a point lacks."""
        rounds = self._timing.rounds
        forecast = Forecast({point: point.problem for point in self._points}, rounds)
        remaining = list(self._points)
        for number in range(1, rounds + 1):
            self._order.shuffle(remaining)
            if self._strategy.whole_problems:
                remaining = _together(remaining, lambda point: point.problem_key)
            remaining = _together(remaining, lambda point: owner_of(point.variant))
            fresh = self._strategy.fresh and number > 1
            for point in tuple(remaining):
                if point not in remaining:
                    continue
                cost_s = None
                if len(rounds_by_point[point]) < number:
                    started = self._clock()
                    yield Visit(
                        point=point,
                        name=f"round {number}/{rounds}" if rounds > 1 else "",
                        visits_left=forecast.visits_left,
                        left_s=forecast.left_s,
                        fresh=fresh,
                        wall_limit_s=self._share_s(forecast.visits_left),
                    )
                    cost_s = self._clock() - started
                    fresh = False
                again = not self._strategy.is_done(rounds_by_point[point][:number], self._timing)
                forecast.visited(point, cost_s, again=again)
                if not again:
                    remaining.remove(point)
                for baseline in (
                    self._useless(rounds_by_point, point) if _failed(rounds_by_point[point]) else ()
                ):
                    if baseline in remaining:
                        forecast.visited(baseline, None, again=False)
                        remaining.remove(baseline)

    def _useless(self, rounds_by_point: RoundsByPoint, failed: Point) -> list[Point]:
        """Return the baselines at the failed point's problem if all other points failed there."""
        points = [point for point in self._points if point.problem_key == failed.problem_key]
        baselines = [point for point in points if point.variant.name in self._strategy.baselines]
        others = (point for point in points if point not in baselines)
        return baselines if all(_failed(rounds_by_point[point]) for point in others) else []


def _failed(measurements: Sequence[Measurement]) -> bool:
    return any(measurement.status != Status.OK for measurement in measurements)


def _together(points: Sequence[Point], unit: Callable[[Point], Hashable]) -> list[Point]:
    """Return the points in order, but with all points of a unit directly after its first point."""
    units = list(dict.fromkeys(map(unit, points)))
    return sorted(points, key=lambda point: units.index(unit(point)))


class Forecast:
    """Forecasts the remaining time from the mean time of the visits in each group of items.

    The items are points, and a group is the points of one problem. In a group without a visit, a
    visit is expected to take the mean time of the visits of all groups.
    """

    def __init__(self, groups: Mapping[Hashable, Hashable], rounds: int) -> None:
        self._groups = groups
        self._of_item = dict.fromkeys(groups, rounds)  # number of visits that each item has left
        self._of_group = Counter(group for group in groups.values() for _ in range(rounds))
        self._spent_s: defaultdict[Hashable, float] = defaultdict(float)
        self._visits: Counter[Hashable] = Counter()

    @property
    def visits_left(self) -> int:
        """Number of visits that are still to be made."""
        return self._of_group.total()

    @property
    def left_s(self) -> float:
        """Expected seconds until the last visit is done, or 0 before the first visit."""
        if not self._visits:
            return 0.0
        mean_s = sum(self._spent_s.values()) / self._visits.total()
        return sum(
            left * (self._spent_s[group] / visits if (visits := self._visits[group]) else mean_s)
            for group, left in self._of_group.items()
        )

    def visited(self, item: Hashable, seconds: float | None, *, again: bool) -> None:
        """Record a visit. `seconds` is None for a visit that an earlier run measured.

        If `again` is false, the visit was the item's last visit.
        """
        group, done = self._groups[item], 1 if again else self._of_item[item]
        self._of_item[item] -= done
        self._of_group[group] -= done
        if seconds is not None:
            self._spent_s[group] += seconds
            self._visits[group] += 1


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The time of a sweep, estimated before it starts."""

    kernels: int  # number of kernels to compile, if none is in the cache
    least_s: float
    """Minimum time of the sweep, if each point takes its minimum number of samples at the peak
    rate. The time to start processes and to compile is included."""

    expected_s: float
    """Time of the sweep if launches have a typical rate. The time is at most the budget, but at
    least `least_s`."""

    budget_s: float | None
    is_first_round: bool = False  # whether this is only the first round of a race

    def __str__(self) -> str:
        """Return a text such as `6 kernels to compile, about 0:20`.

        The text also states whether the budget is too small.
        """
        text = "first round: " if self.is_first_round else ""
        text += f"{counted(self.kernels, 'kernel')} to compile, about {minutes(self.expected_s)}"
        if self.budget_s is not None and self.budget_s < self.least_s:
            text += f"; a budget of {self.budget_s:g} s cannot be met"
        return text


def minutes(seconds: float) -> str:
    """Write a time as minutes and seconds, such as `1:05`. Fractions of a second are rounded up."""
    whole, seconds_left = divmod(math.ceil(seconds), 60)
    return f"{whole}:{seconds_left:02}"


def estimate(points: Collection[Point], device: Device, timing: Timing) -> Estimate:
    """Estimate the time of a sweep from the policy and from typical costs (`Cost`)."""
    cost = backends()[device.backend].cost
    kernels = len({(point.variant, point.tile, point.problem.dtype) for point in points})
    fixed_s = timing.rounds * cost.start_s + kernels * cost.compile_s
    least_s = expected_s = fixed_s + timing.rounds * len(points) * VISIT_S
    typical_gflops = cost.gflops(device)
    for point in points:
        gflop = point.problem.flops / 1e9
        peak = peak_gflops(device, point.problem.dtype)
        least_launch_s = gflop / peak if peak else 0.0
        typical_s = min(gflop / typical_gflops if typical_gflops else 0.0, timing.launch_limit_s)
        least_s += sampling_s(timing, point.state, least_launch_s)
        expected_s += sampling_s(timing, point.state, typical_s)
    if timing.budget_s is not None:
        expected_s = max(least_s, min(expected_s, timing.budget_s))
    return Estimate(
        kernels=kernels, least_s=least_s, expected_s=expected_s, budget_s=timing.budget_s
    )


def sampling_s(timing: Timing, state: State, launch_s: float) -> float:
    """Return how many seconds the samples of a point take, if a launch takes `launch_s`."""
    if state == State.SUSTAINED:
        return timing.rounds * (timing.heat_s + timing.sustained_s)
    if launch_s > timing.slow_launch_s:
        until_done = max(timing.few_samples, math.ceil(timing.max_wall_s / launch_s))
        return min(timing.rounds * timing.round_few_samples, until_done) * launch_s
    return timing.rounds * max(timing.round_device_s, timing.round_samples * launch_s)
