"""What `tune` measures next: a race for each variant and problem, one after the other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter
from time import perf_counter

from gpubench.commands.tune.prune import Builds
from gpubench.commands.tune.where import Condition
from gpubench.errors import UsageError
from gpubench.model import Config, Device, Measurement, Point, Space, Status, Timing, Variant
from gpubench.plan.schedule import Known, Schedule, Visit
from gpubench.plan.sweep import Sweep
from gpubench.stats.race import MAX_ROUNDS, Race
from gpubench.view.tables import time_text

LARGE = 3000
"""Configurations: of a larger space a sample is raced, and the neighbours of its leaders. Never
more than these take part."""

SAMPLE = 1000
LEADERS = 3
"""So many have their neighbours enter, after each round from the second on."""

SEVERAL = 2

VISIT_S = 0.002
"""Sampling in a visit stops after this wall time, once it has two samples: a race has many."""


def visits_of(timing: Timing) -> Timing:
    """The policy of a race's visits; limits stay as they are."""
    return replace(timing, rounds=1, min_samples=2, few_samples=1, max_wall_s=VISIT_S)


def entrants(space: Space, seed: int) -> tuple[tuple[Config, ...], bool]:
    """All legal configurations; of a large space the author's and a sample, and True."""
    every = tuple(islice(space, LARGE + 1))
    if len(every) <= LARGE:
        return every, False
    legal = (tile for tile in space.defaults if space.why_not(tile) is None)
    return tuple(dict.fromkeys((*legal, *space.sample(SAMPLE, seed)))), True


def neighbours(space: Space, tile: Config) -> Iterator[Config]:
    """Legal configurations one step away on one axis."""
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
    """Races the configurations of each variant and problem. This is the strategy of `tune`."""

    where: str | None
    """The condition of `--where`."""

    within: float
    """Configurations that are slower by at most this fraction count as equal."""

    is_race = True

    def space(self, variant: Variant) -> Space:
        """Return the variant's space as far as `--where` leaves it. Raises UsageError."""
        if variant.tiles is None or not variant.tiles.axes:
            raise UsageError(f"{variant.name} has no tile to choose")
        if self.where is None:
            return variant.tiles
        fulfils = Condition(self.where, variant.tiles.axes, variant.name)
        own = variant.tiles.constraint

        def constraint(config: Config) -> str | None:
            return (own(config) if own else None) or (None if fulfils(config) else "not --where")

        return replace(variant.tiles, constraint=constraint)

    def schedule(self, points: Sequence[Point], sweep: Sweep, device: Device) -> Schedule:
        """Return the races of the points."""
        return Races(
            points,
            {point.variant: self.space(point.variant) for point in points},
            Builds(device),
            within=self.within,
            budget_s=sweep.timing.budget_s,
            seed=sweep.seed,
            refuse=lambda point: point.variant.why_not(
                point.tile, point.problem, device.compute_capability
            ),
        )

    def unit(self, point: Point) -> Hashable:
        """Return the race of a point."""
        return point.key._replace(tile="")

    def is_done(self, rounds: Sequence[Measurement], _timing: Timing) -> bool:
        """Whether a point left the race, or cannot run."""
        return any(measurement.status != Status.OK for measurement in rounds)

    def common(self, _points: Sequence[Point]) -> Sequence[Point]:
        """Return nothing: each race runs on one device, so devices need not be compared."""
        return ()


class Races:
    """A `Schedule` of races. All that it goes by is in the measurements, so it can be resumed.

    `refuse` says why a point that was not planned cannot run, or None.
    """

    def __init__(
        self,
        points: Sequence[Point],
        spaces: Mapping[Variant, Space],
        builds: Builds,
        *,
        within: float,
        budget_s: float | None = None,
        seed: int = 0,
        refuse: Callable[[Point], str | None] = lambda _point: None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._groups: dict[Point, list[Point]] = {}
        """The points of each race, under the point without its tile."""

        for point in points:
            self._groups.setdefault(replace(point, tile=None), []).append(point)
        self._spaces, self._builds, self._refuse = spaces, builds, refuse
        self._within, self._seed, self._clock = within, seed, clock
        self._ends_s = math.inf if budget_s is None else clock() + budget_s
        self._visits: Iterator[Visit] | None = None
        self.endings: dict[Point, str] = {}
        """Why each race ended, under its point without a tile."""

    @property
    def visits(self) -> int:
        """One of each point: how many more there are, the race decides."""
        return sum(map(len, self._groups.values()))

    def next(self, known: Known) -> Visit | None:
        """The next visit, or the next point that leaves."""
        if self._visits is None:
            self._visits = self._all(known)
        return next(self._visits, None)

    def close(self) -> None:
        """Stop compiling."""
        self._builds.close()

    def _all(self, known: Known) -> Iterator[Visit]:
        for number, (of, points) in enumerate(self._groups.items()):
            now_s = self._clock()
            share_s = max(0.0, self._ends_s - now_s) / (len(self._groups) - number)
            contest = _Contest(
                known,
                self._builds,
                self._spaces[of.variant],
                within=self._within,
                ends_s=now_s + share_s,
                seed=self._seed,
                refuse=self._refuse,
                clock=self._clock,
            )
            self.endings[of] = yield from contest.run(of, points)


class _Contest:
    """One race, begun or continued."""

    def __init__(
        self,
        known: Known,
        builds: Builds,
        space: Space,
        *,
        within: float,
        ends_s: float,
        seed: int,
        refuse: Callable[[Point], str | None],
        clock: Callable[[], float],
    ) -> None:
        self._known, self._builds, self._space = known, builds, space
        self._within, self._ends_s, self._refuse, self._clock = within, ends_s, refuse, clock
        tiles, self._sampled = entrants(space, seed)
        self._first = frozenset(tiles)
        patient = ends_s < math.inf
        self._race = Race(LARGE if self._sampled else len(tiles), within, seed, patient=patient)
        self._numbers: dict[Point, int] = {}
        """The race's number of each point that takes part."""

        self._fastest: tuple[float, Point] | None = None
        self._visit_s: list[float] = []

    def run(self, of: Point, points: Sequence[Point]) -> Generator[Visit, None, str]:
        """The visits, and the points that leave; returns why it ended."""
        race = self._race
        self._enter(self._builds.promising([p for p in points if p.tile in self._first]))
        self._replay([taken for point in points for taken in self._known[point]])
        yield from self._leaving()
        while not race.over and self._clock() < self._ends_s:
            yield from self._round()
            race.judge()
            yield from self._leaving()
            if self._sampled and race.round > SEVERAL:
                self._let_neighbours_enter(of)
        if len(race.racing) < 2:  # noqa: PLR2004 # it has won
            return "one is left"
        if not race.over:
            return "the time was up"
        if race.spent:
            return f"not decided after {race.round - 1} rounds; --budget gives it more time"
        return f"all that are left are within {100 * self._within:g} % of each other"

    def _enter(self, points: Sequence[Point]) -> None:
        self._builds.start(points)
        self._numbers |= zip(points, self._race.enter(len(points)), strict=True)

    def _replay(self, measurements: Sequence[Measurement]) -> None:
        """Go through what an earlier run measured: a second visit to a point begins a round."""
        for taken in sorted(measurements, key=lambda one: one.started_utc):
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
        while race.waiting:
            late = self._clock() >= self._ends_s
            waiting = [points[number] for number in race.waiting]
            at = 0 if late else self._builds.first_ready(waiting)
            number, point = race.waiting[at], waiting[at]
            if not self._known.get(point):
                why = "the budget ended before its turn" if late else self._why_not(point)
                if why:
                    status = Status.SKIPPED if late else Status.ELIMINATED
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
            )
            self._visit_s.append(self._clock() - began_s)
            self._record(number, self._known[point][-1])

    def _leaving(self) -> Iterator[Visit]:
        """The points that the race has let go, as far as that is not known yet."""
        why = f"shown to be more than {100 * self._within:g} % slower than the best"
        for point, number in self._numbers.items():
            if number in self._race.slower and self._known[point][-1].status == Status.OK:
                yield Visit(point=point, outcome=self._out(point, Status.ELIMINATED, why))

    def _let_neighbours_enter(self, of: Point) -> None:
        points, race = list(self._numbers), self._race
        leaders = sorted(race.racing, key=lambda number: race.apart.get(number, (0.0, math.inf))[1])
        near = dict.fromkeys(
            replace(of, tile=tile)
            for number in leaders[:LEADERS]
            if (at := points[number].tile) is not None
            for tile in neighbours(self._space, at)
        )
        new = [point for point in near if point not in self._numbers and not self._refuse(point)]
        self._enter(self._builds.promising(new)[: LARGE - len(points)])

    def _why_not(self, point: Point) -> str | None:
        fastest_us, fastest = self._fastest or (math.inf, None)
        return self._builds.why_not(point, fastest, fastest_us)

    def _out(self, point: Point, status: Status, reason: str) -> Measurement:
        launch = self._builds.launch(point)
        return Measurement(
            point=point,
            status=status,
            reason=reason,
            resources=self._builds.resources(point) if launch else None,
            launch=launch and replace(launch, next_launches=(), tensor_maps=()),
            started_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def _name(self) -> str:
        """`round 3: 12 of 256 left, 64 leads with 1.204 ms ±0.5 %;` as progress shows it."""
        race = self._race
        name = f"round {race.round}: {len(race.racing)} of {len(self._numbers)} left"
        if race.leader is not None:
            leader = list(self._numbers)[race.leader]
            times = [taken.series.median_us for taken in self._known[leader] if taken.series]
            name += f", {leader.tile} leads with {time_text(statistics.median(times))}"
            name += f" ±{100 * race.leader_error:.2g} %"
        return f"{name};"

    def _left_s(self) -> float:
        """Seconds that this round still takes, and from the second on all that may follow."""
        visits = len(self._race.waiting)
        if self._race.round > 1:
            visits += len(self._race.racing) * (MAX_ROUNDS - self._race.round)
        each_s = statistics.mean(self._visit_s[-50:]) if self._visit_s else 0.0
        return min(visits * each_s, max(0.0, self._ends_s - self._clock()))
