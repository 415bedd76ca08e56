"""Defines pools, which measure jobs, and implements the pool that has one device of this machine.

`Pool` is the interface that `run` uses. `LocalPool` measures on one device. `ClusterPool` in
`cluster_pool.py` measures on the workers of a Dask cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from gpubench.backends import device_label
from gpubench.engine.judge.verdict import WrongError, as_judged, why_too_fast
from gpubench.engine.measure.runner import Runner
from gpubench.engine.measurements import Measurements, Place
from gpubench.engine.prepare import Job
from gpubench.engine.worker import Worker
from gpubench.hardware.peaks import fma_rate
from gpubench.model import CORE_DTYPES, OPERATIONS, Device, Measurement, PointKey, Timer
from gpubench.plan.schedule import Estimate, Visit


class Watcher:
    """Shows the progress of a job. The base class shows nothing."""

    def planned(self, job: Job, pool: Pool, visits: int, foreseen: Estimate) -> None:
        """Called before kernels are compiled, with the maximum number of visits."""

    def compiled(self, kernels: int) -> None:
        """Called with the number of kernels compiled so far."""

    def measuring(self, visit: Visit) -> None:
        """Called when a point is about to be measured."""

    def measured(self, measurement: Measurement) -> None:
        """Called when a point has a new measurement, which may be known without a launch."""


Keep = Callable[[Measurement], None]  # function that keeps a measurement, such as in a file


class Pool(Protocol):
    """Measures one job after the other, on one device or on several devices of one kind."""

    device: Device  # the device, or the first of several devices
    name: str  # the name for the default file of results: the device's name, or `shared`
    label: str  # what a heading adds to the device's name: `cuda:0`, `2 devices`
    notices: tuple[str, ...]  # lines that a user should read before the results
    context: Mapping[str, str]
    """Facts about the pool that must not have changed when a sweep is resumed. `Job.context` has
    the facts about the job."""

    endings: dict[PointKey, str]
    """Maps the key of each race of the last job to the reason why the race ended. The points of a
    race have this key, apart from their tiles."""

    @property
    def spent_s(self) -> Mapping[str, float]:
        """Wall time, in seconds, that the last job spent in each phase."""

    def measure(self, job: Job, measurements: Measurements, keep: Keep, watcher: Watcher) -> None:
        """Measure the points that are not finished in `measurements`.

        Each new measurement is given to `keep`, and is then added to `measurements`. An exception
        in `keep` ends the job.
        """

    def device_at(self, place: Place) -> Device:
        """Return the device at a place, with the rates that the last job measured there."""

    def renew(self) -> None:
        """Let the next job begin in a fresh process."""


Executor = Worker | Runner
"""Type of the object that measures the points of a `LocalPool`, in a child process or in this
process."""

CEILING_REPEATS = 3
"""Maximum number of times that a device's peak is measured again, if a result exceeds the peak."""

CEILING_RATIO = 1.05  # maximum ratio of a right result to the peak


class LocalPool:
    """One device of this machine, with an executor that measures one point at a time.

    `slot` is the device's name in its `Place`, if the device has no address of its own.
    """

    context: Mapping[str, str] = {}

    def __init__(self, executor: Executor, slot: str = "") -> None:
        self.executor = executor
        self.device, self.notices = executor.device, executor.notices
        self.name, self.label = self.device.name, device_label(self.device)
        self.place = Place.here(self.device, slot)
        self.endings: dict[PointKey, str] = {}
        self._repeated: set[str] = set()  # names of the peaks that were measured again

    @property
    def spent_s(self) -> Mapping[str, float]:
        """Wall time, in seconds, that the last job spent in each phase."""
        return self.executor.spent_s

    def measure(self, job: Job, measurements: Measurements, keep: Keep, watcher: Watcher) -> None:
        """Compile kernels, warm up the device, and measure the points that the schedule yields."""

        def add(measurement: Measurement) -> None:
            placed = self.place.put_into(measurement)
            keep(placed)
            measurements.add(placed)
            watcher.measured(placed)

        executor, sweep, strategy = self.executor, job.sweep, job.strategy
        executor.begin(sweep.timing, sweep.seed, job.verified)
        unfinished = [point for point in job.points if not measurements.is_finished(point)]
        raced = [p for p in measurements.by_place[self.place] if p not in job.planned]
        measured = measurements.known_at(self.place)
        self.endings = {}
        with closing(strategy.schedule([*job.points, *raced], sweep, job.device)) as schedule:
            watcher.planned(job, self, schedule.visits, job.forecast(unfinished))
            if not strategy.is_race:
                executor.compile(unfinished, watcher.compiled)
            executor.warm_up()
            self._measure_ceilings(job)
            try:
                for visit in schedule.each(measured):
                    if visit.outcome:
                        add(visit.outcome)
                        continue
                    watcher.measuring(visit)
                    if visit.fresh:
                        executor.next_round()
                    measurement = executor.measure(visit.point, visit.wall_limit_s)
                    add(self._below_ceiling(measurement))
            finally:
                self.endings = {point.key: why for point, why in schedule.endings.items()}

    def _measure_ceilings(self, job: Job) -> None:
        """Measure the device's highest rates, if results are shown as percentages of these rates.

        An operation that is bound by memory is compared with the rate of a copy, which is measured
        in this sweep. A CPU has no theoretical peak, so its rate of multiply-adds is measured once
        a day for each dtype of the job. The rate of multiply-adds is measured again if a result
        exceeds the rate.
        """
        bound_by_memory = OPERATIONS[job.sweep.op].bandwidth_bound
        is_cpu = self.device.compute_capability is None
        if not (bound_by_memory or is_cpu):
            return
        dtypes = {point.problem.dtype for point in job.points if is_cpu}
        in_order = [dtype for dtype in CORE_DTYPES if dtype in dtypes]
        rates = self.executor.ceilings(in_order, not bound_by_memory)
        self.device = replace(self.device, facts=self.device.facts | rates)

    def _below_ceiling(self, measurement: Measurement) -> Measurement:
        """Return the measurement, but as `wrong` if its rate exceeds the measured peak.

        Other work on the device may have lowered the measured peak. So the peak is measured again
        before the measurement is judged.
        """
        problem, series = measurement.point.problem, measurement.series
        name = fma_rate(problem.dtype)
        if series is None or name not in self.device.facts:
            return measurement
        gflops = problem.flops / series.median_us / 1e3

        def why(margin: float) -> str:
            return why_too_fast(gflops, self.device.facts[name], margin)

        if not why(CEILING_RATIO if name in self._repeated else 1.0):
            return measurement
        for _ in range(CEILING_REPEATS):
            self._repeated.add(name)
            rate = self.executor.ceilings([problem.dtype])[name]
            highest = max(rate, self.device.facts[name])
            self.device = replace(self.device, facts=self.device.facts | {name: highest})
            if not why(CEILING_RATIO):
                return measurement
        return as_judged(measurement, WrongError(why(CEILING_RATIO)))

    def device_at(self, _place: Place) -> Device:
        """Return the only device of this pool, whatever the place is."""
        return self.device

    def renew(self) -> None:
        """End the executor's process. The next point starts another process."""
        self.executor.next_round()


@contextmanager
def local_pool(
    device: str, timer: Timer = Timer.EVENTS, slot: str = "", kernels: Path | None = None
) -> Iterator[LocalPool]:
    """Open, in a child process, the device of this machine that `--device` names.

    Raises DeviceUnavailableError if the device or the timer is missing, and DeviceBusyError if
    another sweep uses the GPU.
    """
    with Worker(device, timer, kernels=kernels) as worker:
        yield LocalPool(worker, slot)
