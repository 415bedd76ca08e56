"""Groups the measurements of a job by the place where each measurement was made."""

from __future__ import annotations

import platform
import statistics
from collections import ChainMap, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpubench.engine.prepare import Job
from gpubench.model import Device, Measurement, Point


class Place(NamedTuple):
    """Place where a point was measured. All fields are empty for a point that was not launched."""

    hostname: str = ""
    slot: str = ""
    device_uuid: str = ""

    @classmethod
    def here(cls, device: Device, slot: str = "") -> Place:
        """Return the place of a device of this machine.

        `slot` is the name of a Dask worker. This name is used if the device has no address of its
        own.
        """
        facts = device.facts
        return cls(platform.node(), facts.get("slot") or slot, facts.get("uuid") or "")

    @classmethod
    def of(cls, measurement: Measurement) -> Place:
        """Return the place where a measurement was made."""
        return cls(measurement.hostname, measurement.slot, measurement.device_uuid)

    def put_into(self, measurement: Measurement) -> Measurement:
        """Return the measurement with this place in its fields."""
        return replace(measurement, **self._asdict())


class Measurements:
    """All measurements that a job has made so far, grouped by place and by point.

    The oldest round of a point comes first. The rounds of a point are never mixed between places,
    because devices differ.
    """

    def __init__(self, job: Job) -> None:
        self._strategy, self._timing = job.strategy, job.sweep.timing
        self.by_place: defaultdict[Place, dict[Point, list[Measurement]]] = defaultdict(dict)

    def add(self, measurement: Measurement) -> None:
        """Add a measurement as the newest round of its point."""
        rounds = self.by_place[Place.of(measurement)].setdefault(measurement.point, [])
        rounds.append(measurement)

    def is_finished(self, point: Point) -> bool:
        """Whether there is a place where a point has all its rounds, or where the point failed."""
        return any(
            self._is_done(by_point[point])
            for by_point in self.by_place.values()
            if point in by_point
        )

    def is_new(self, measurement: Measurement) -> bool:
        """Whether a measurement adds a round to its point.

        If a worker measures a share of a sweep again, the measurements repeat rounds that are kept.
        """
        rounds = self.by_place[Place.of(measurement)].get(measurement.point, [])
        starts = {earlier.started_utc for earlier in rounds}
        is_done = not self._strategy.is_race and self._is_done(rounds)
        return not is_done and measurement.started_utc not in starts

    def device_speeds(self) -> dict[Place, float]:
        """Return the speed of each place, in percent of the median speed of all places.

        The speed is the median over the points that several places measured. A place without such a
        point has no speed.
        """
        times_us: defaultdict[Point, dict[Place, float]] = defaultdict(dict)
        for place, by_point in self.by_place.items():
            for point, rounds in by_point.items():
                medians_us = [taken.series.median_us for taken in rounds if taken.series]
                if rounds and len(medians_us) == len(rounds):
                    times_us[point][place] = statistics.median(medians_us)
        ratios: defaultdict[Place, list[float]] = defaultdict(list)
        for place_times_us in times_us.values():
            if len(place_times_us) > 1:
                middle_us = statistics.median(place_times_us.values())
                for place, time_us in place_times_us.items():
                    ratios[place].append(middle_us / time_us)
        return {place: 100 * statistics.median(of_place) for place, of_place in ratios.items()}

    def known_at(self, place: Place) -> Mapping[Point, Sequence[Measurement]]:
        """Return a live view of the measurements that a schedule for this place uses.

        The view has each point's measurements at this place, or at the place that finished the
        point. A race uses only the measurements at this place. A point without measurements has an
        empty sequence.
        """
        finished = {
            point: rounds
            for other, by_point in self.by_place.items()
            if other != place and not self._strategy.is_race
            for point, rounds in by_point.items()
            if self._is_done(rounds)
        }
        return _Known(self.by_place[place], finished)  # type: ignore[arg-type] # nothing writes into it

    def _is_done(self, rounds: Sequence[Measurement]) -> bool:
        return self._strategy.is_done(rounds, self._timing)


class _Known(ChainMap[Point, Sequence[Measurement]]):
    def __missing__(self, _point: Point) -> Sequence[Measurement]:
        return ()
