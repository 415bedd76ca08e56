"""The strategy of `tune`, which runs one race after the other for all variants and problems."""

import math
import statistics
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from operator import attrgetter, itemgetter
from time import perf_counter

from gpubench.commands.tune.prune import Builds
from gpubench.commands.tune.where import condition
from gpubench.errors import UsageError
from gpubench.grouping import grouped
from gpubench.model import Config, Device, Measurement, Point, Space, Status, Timing, Variant
from gpubench.plan.schedule import RoundsByPoint, Schedule, Visit
from gpubench.plan.sweep import Sweep
from gpubench.stats.race import MAX_ROUNDS, MIN_VISITS, Race
from gpubench.text import counted
from gpubench.view.numbers import time_text

LARGE = 3000
"""Maximum number of configurations in a race. If a space is larger, a sample of its configurations
and the neighbours of the leaders are raced."""

SAMPLE = 1000  # number of configurations in the sample of a larger space
LEADERS = 3  # number of leading configurations whose neighbours join a race
NEIGHBOURS_ENTER = range(3, MAX_ROUNDS - MIN_VISITS + 2)
"""Numbers of the rounds before which neighbours may join a race. Enough rounds must be left to
judge the neighbours."""

VISIT_S = 0.002  # wall time after which a visit with two samples stops sampling


class SkipReason(StrEnum):
    """Why a configuration of a race was not measured."""

    BUDGET_ENDED = "the budget ended before its turn"


def visits_of(timing: Timing) -> Timing:
    """Return a sweep's settings for timing, changed so that each visit of a race is short."""
    return replace(timing, rounds=1, min_samples=2, few_samples=1, max_wall_s=VISIT_S)


def entrants(space: Space, seed: int) -> tuple[tuple[Config, ...], bool]:
    """Return the configurations that start in a race, and whether these are only a sample.

    All legal configurations start, except in a space with more than `LARGE` legal configurations.
    From such a space, the default configurations and a sample start.
    """
    every = tuple(islice(space, LARGE + 1))
    if len(every) <= LARGE:
        return every, False
    legal = (tile for tile in space.defaults if space.why_not(tile) is None)
    return tuple(dict.fromkeys((*legal, *space.sample(SAMPLE, seed)))), True


def neighbours(space: Space, tile: Config) -> Iterator[Config]:
    """Yield the legal configurations that differ from a tile by one step on one axis."""
    for name, axis in space.axes.items():
        at = axis.index(tile[name])
        for step in (at - 1, at + 1):
            if 0 <= step < len(axis):
                values = {**tile, name: axis[step]}
                near = Config(values.items(), space.block, space.thread)
                if space.why_not(near) is None:
                    yield near


@dataclass(frozen=True, kw_only=True)
class Racing:
    """Races the configurations of each variant and problem. `Racing` is the strategy of `tune`."""

    where: str | None  # the condition of `--where`
    within: float  # configurations that are slower by at most this fraction count as equal
    overlap: bool = False
    """Whether launches overlap. If launches do not overlap, the parameter `pdl` has no effect, and
    only its last value is raced."""

    is_race = True

    def space(self, variant: Variant) -> Space:
        """Return the part of the variant's space that fulfils `--where`.

        Raises UsageError if the variant has no space.
        """
        if variant.tiles is None or not variant.tiles.axes:
            raise UsageError(f"{variant.name} has no tile to choose")
        axes = variant.tiles.axes
        if not self.overlap and len(axes.get("pdl", ())) > 1:
            axes = {**axes, "pdl": axes["pdl"][-1:]}  # `pdl` has no effect
        space = replace(variant.tiles, axes=axes)
        if self.where is None:
            return space
        fulfils = condition(self.where, axes, variant.name)
        own = variant.tiles.constraint

        def constraint(config: Config) -> str | None:
            return (own(config) if own else None) or (None if fulfils(config) else "not --where")

        return replace(space, constraint=constraint)

    def schedule(self, points: Sequence[Point], sweep: Sweep, device: Device) -> Schedule:
        """Return a schedule that races the points."""
        return Races(self, points, sweep, device)

    def unit(self, point: Point) -> Hashable:
        """Return what identifies the race of a point."""
        return point.key._replace(tile="")

    def is_done(self, rounds: Sequence[Measurement], _timing: Timing) -> bool:
        """Return whether a point was eliminated from the race, or cannot run."""
        return any(measurement.status != Status.OK for measurement in rounds)

    def common(self, _points: Sequence[Point]) -> Sequence[Point]:
        """Return no points. Each race runs on one device, so devices need not be compared."""
        return ()


class Races:
    """A `Schedule` of races.

    The schedule depends only on the measurements, so a race can be resumed.
    """

    def __init__(
        self,
        strategy: Racing,
        points: Sequence[Point],
        sweep: Sweep,
        device: Device,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._groups = grouped(points, lambda point: replace(point, tile=None))
        """The points of each race. The key is a point without a tile."""

        self._spaces = {point.variant: strategy.space(point.variant) for point in points}
        self.builds, self.device = Builds(device), device
        self.within, self.seed, self.clock = strategy.within, sweep.seed, clock
        budget_s = sweep.timing.budget_s
        self._ends_s = math.inf if budget_s is None else clock() + budget_s
        self.visits = len(points)
        """Number of visits that are certain, which is one visit to each point. The race decides how
        many visits follow."""

        self.endings: dict[Point, str] = {}  # why each race ended, by point without a tile

    def close(self) -> None:
        """Stop compiling."""
        self.builds.close()

    def each(self, rounds_by_point: RoundsByPoint) -> Iterator[Visit]:
        """Yield each visit to a point, and each point that its race eliminates or skips."""
        for number, (race, points) in enumerate(self._groups.items()):
            now_s = self.clock()
            share_s = max(0.0, self._ends_s - now_s) / (len(self._groups) - number)
            space, ends_s = self._spaces[race.variant], now_s + share_s
            contest = _Contest(self, rounds_by_point, space, ends_s=ends_s)
            self.endings[race] = yield from contest.run(race, points)


class _Contest:
    """One race, which is new or continues an earlier run."""

    def __init__(
        self, races: Races, rounds_by_point: RoundsByPoint, space: Space, *, ends_s: float
    ) -> None:
        self._rounds_by_point, self._space, self._ends_s = rounds_by_point, space, ends_s
        self._builds, self._capability = races.builds, races.device.compute_capability
        self._within, self._clock, seed = races.within, races.clock, races.seed
        tiles, self._sampled = entrants(space, seed)
        self._first = frozenset(tiles)
        self._race = Race(self._within, seed, patient=ends_s < math.inf)
        self._numbers: dict[Point, int] = {}  # the number that identifies a point in the race
        self._fastest: tuple[float, Point] | None = None
        self._visit_s: list[float] = []
        self._ended_early = False  # whether the budget ended before each point was visited once

    def run(self, kind: Point, points: Sequence[Point]) -> Generator[Visit, None, str]:
        """Yield the visits and the eliminated points, and return why the race ended.

        `kind` is what the points have in common: a point without a tile.
        """
        race = self._race
        self._enter(self._builds.promising([p for p in points if p.tile in self._first]))
        self._replay([taken for point in points for taken in self._rounds_by_point[point]])
        yield from self._leaving()
        # Round 1 also begins if an earlier race has used up the budget: it skips all points.
        while not race.over and (race.round == 1 or self._clock() < self._ends_s):
            yield from self._round()
            race.judge()
            yield from self._leaving()
            if self._sampled and race.round in NEIGHBOURS_ENTER:
                self._let_neighbours_enter(kind)
        rounds = race.round - 1 if self._fastest else 0
        if self._ended_early:
            return f"--budget ended after {counted(rounds, 'round')}"
        if len(race.racing) < 2 and race.round > 1:  # noqa: PLR2004 # the last configuration has won
            return "one configuration is left"
        if rounds and race.decided:
            return (
                f"all configurations that are left are within {100 * self._within:g} % of each "
                "other"
            )
        if race.settled:
            return f"not distinguished in {rounds} rounds, each in a new process"
        return f"--budget ended after {counted(rounds, 'round')}"

    def _enter(self, points: Sequence[Point]) -> None:
        self._builds.start(points)
        self._numbers |= zip(points, self._race.enter(len(points)), strict=True)

    def _replay(self, measurements: Sequence[Measurement]) -> None:
        """Add the measurements of an earlier run. A second visit to a point starts a new round."""
        for taken in sorted(measurements, key=attrgetter("started_utc")):
            if taken.point not in self._numbers:
                self._enter([taken.point])
            number = self._numbers[taken.point]
            if taken.series and number in self._race.racing - {*self._race.waiting}:
                self._race.judge()
            if number in self._race.racing:
                self._record(number, taken)

    def _record(self, number: int, taken: Measurement) -> None:
        if taken.series is None:
            self._race.withdraw(number)
            return
        self._race.add(number, taken.series.median_us)
        mine = taken.series.median_us, taken.point
        self._fastest = min(self._fastest or mine, mine, key=itemgetter(0))

    def _round(self) -> Iterator[Visit]:
        race, points = self._race, list(self._numbers)
        fresh = race.round > 1  # the effect of one process must not decide
        while race.waiting:
            late = self._clock() >= self._ends_s
            waiting = [points[number] for number in race.waiting]
            at = 0 if late else self._builds.first_ready(waiting)
            number, point = race.waiting[at], waiting[at]
            if not self._rounds_by_point.get(point):
                fastest_us, fastest = self._fastest or (math.inf, None)
                why = (
                    SkipReason.BUDGET_ENDED
                    if late
                    else self._builds.why_not(point, fastest, fastest_us)
                )
                if why:
                    status = Status.SKIPPED if late else Status.ELIMINATED
                    self._ended_early |= late
                    race.withdraw(number)
                    yield Visit(point=point, outcome=self._out(point, status, why))
                    continue
            elif late:
                return
            began_s = self._clock()
            yield Visit(
                point=point,
                name=self._name(),
                visits_left=len(race.waiting),
                left_s=self._left_s(),
                fresh=fresh,
            )
            fresh = False
            self._visit_s.append(self._clock() - began_s)
            self._record(number, self._rounds_by_point[point][-1])

    def _leaving(self) -> Iterator[Visit]:
        """Yield the points that the race eliminated, unless a measurement already records this."""
        why = f"shown to be more than {100 * self._within:g} % slower than the best"
        for point, number in self._numbers.items():
            if number in self._race.slower and self._rounds_by_point[point][-1].status == Status.OK:
                yield Visit(point=point, outcome=self._out(point, Status.ELIMINATED, why))

    def _let_neighbours_enter(self, kind: Point) -> None:
        points, race = list(self._numbers), self._race
        leaders = sorted(race.racing, key=lambda number: race.behind.get(number, math.inf))
        near = dict.fromkeys(
            replace(kind, tile=tile)
            for number in leaders[:LEADERS]
            if (at := points[number].tile) is not None
            for tile in neighbours(self._space, at)
        )
        new = [
            point
            for point in near
            if point not in self._numbers
            and not point.variant.why_not(point.tile, point.problem, self._capability)
        ]
        self._enter(self._builds.promising(new)[: LARGE - len(points)])

    def _out(self, point: Point, status: Status, reason: str) -> Measurement:
        launch = self._builds.launch(point)
        return Measurement(
            point=point,
            status=status,
            reason=reason,
            resources=self._builds.resources(point) if launch else None,
            launch=launch and replace(launch.main, next_launches=(), tensor_maps=()),
            started_utc=datetime.now(UTC).isoformat(timespec="microseconds"),
        )

    def _name(self) -> str:
        """Return a text for the progress: the round, the configurations left, and the leader."""
        race = self._race
        name = f"round {race.round}: {len(race.racing)} of {len(self._numbers)} left"
        if race.leader is not None:
            leader = list(self._numbers)[race.leader]
            times = [
                taken.series.median_us for taken in self._rounds_by_point[leader] if taken.series
            ]
            name += f", {leader.tile} leads with {time_text(statistics.median(times))}"
            if race.leader_error < 1:  # a wider interval says nothing
                name += f" ±{100 * race.leader_error:.2g} %"
        return f"{name};"

    def _left_s(self) -> float:
        """Return the expected number of seconds until the race ends, or until round 1 ends."""
        visits = len(self._race.waiting)
        if self._race.round > 1:
            visits += len(self._race.racing) * (MAX_ROUNDS - self._race.round)
        each_s = statistics.mean(self._visit_s[-50:]) if self._visit_s else 0.0
        return min(visits * each_s, max(0.0, self._ends_s - self._clock()))
