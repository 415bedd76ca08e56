"""Shares a job among the workers of a Dask cluster, whose devices are all of one kind.

The unit of work is a share. A share has some points with all their rounds, and the baselines with
which these points are compared. If a worker dies, Dask gives the worker's share to another worker.
A worker sends each measurement immediately.
"""

from __future__ import annotations

import math
import platform
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from secrets import token_hex
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from gpubench.engine.cluster import (
    ANSWER_S,
    SILENT_S,
    Heartbeats,
    Member,
    cancel,
    members,
    present,
    require_one_kind,
    result_of,
    within,
)
from gpubench.engine.measurements import Measurements, Place
from gpubench.engine.pool import Keep, Watcher, local_pool
from gpubench.engine.prepare import Job, prepare
from gpubench.errors import GpubenchError, PeerLostError, UsageError, first_line
from gpubench.grouping import grouped
from gpubench.model import Device, Measurement, Point, PointKey
from gpubench.plan.schedule import Strategy, Visit
from gpubench.plan.sweep import Sweep
from gpubench.results.provenance import package_version
from gpubench.results.result_file import decode_line, encode_line
from gpubench.text import counted

if TYPE_CHECKING:
    from distributed import Client, Future

SHARE_S = 60.0
"""Expected time of a share, if a sweep is long enough for several shares per worker. If a worker
dies, its share is measured again. At the end of a sweep, the other workers wait for the last worker
at most about this time."""

NO_WORKER_LIMIT_S = 30.0
"""Time without any worker after which a sweep ends. The sweep can be resumed."""

CONTINUES = "the measurements are kept, and --resume continues the sweep, with or without --on"

LOOK_EVERY_S = 1.0  # time between two searches for silent workers


class Share(NamedTuple):
    """A request to a worker. The worker plans the sweep, and measures the points of `keys`."""

    sweep: Sweep
    strategy: Strategy
    keys: frozenset[PointKey]
    kind: tuple[str, ...]  # the `Member.kind` of the job's devices
    topic: str  # the topic of the Dask events that deliver the measurements
    earlier: tuple[bytes, ...] = ()
    """Earlier measurements of these points, if a race is continued. A race continues only at the
    place (`Place`) where it began."""


class ShareResult(NamedTuple):
    """The answer that a worker returns for a share, also if an error ended the share."""

    address: str
    lines: list[bytes]  # all measurements, as `encode_line` writes them
    device: Device | None = None  # the worker's device, with its measured rates
    spent_s: Mapping[str, float] = {}
    endings: Mapping[PointKey, str] = {}
    error: GpubenchError | None = None


# ---- in a worker


class _UntilCancelled(Watcher):
    """Ends the measurement of a share that the scheduler has cancelled."""

    def __init__(self, worker: Any) -> None:
        self._worker, self._task = worker, worker.get_current_task()

    def measuring(self, _visit: Visit) -> None:
        task = self._worker.state.tasks.get(self._task)
        if task is None or task.state != "executing":
            raise KeyboardInterrupt


def measure_share(share: Share) -> ShareResult:
    """Measure a share in this Dask worker.

    An error is returned in the result and not raised, because another worker may succeed.
    """
    from distributed import get_worker

    worker = get_worker()
    sweep, name = share.sweep, str(worker.name)
    lines: list[bytes] = []
    try:
        with local_pool(sweep.device, sweep.timer, name, sweep.kernels) as pool:
            member = Member(name, platform.node(), pool.device, package_version()[0])
            if member.kind != share.kind:
                raise UsageError(
                    f"{member.label} joined with another kind of device, driver or gpubench"
                )
            job = prepare(
                sweep,
                pool.device,
                keep=lambda point: point.key in share.keys,
                strategy=share.strategy,
            )
            measurements = Measurements(job)
            for line in share.earlier:
                measurements.add(decode_line(line, job.point_of))

            def keep(measurement: Measurement) -> None:
                lines.append(encode_line(measurement))
                worker.log_event(share.topic, lines[-1])

            with suppress(KeyboardInterrupt):  # the share was cancelled
                pool.measure(job, measurements, keep, _UntilCancelled(worker))
            device, spent_s = pool.device_at(pool.place), dict(pool.spent_s)
            return ShareResult(worker.address, lines, device, spent_s, dict(pool.endings))
    except GpubenchError as error:
        return ShareResult(worker.address, lines, error=error)


# ---- in the main process


class ClusterPool:
    """The workers of a Dask cluster. Raises UsageError if their devices are of several kinds."""

    name = "shared"
    context: Mapping[str, str] = {"on": "several devices"}

    def __init__(self, client: Client, device: str) -> None:
        self._client = client
        self._members, unanswered = members(client, device)
        first = require_one_kind(self._members)
        self.device, self._kind = first.device, first.kind
        self.label = counted(len(self._members), "device")
        labels = ", ".join(member.label for member in self._members.values())
        missing = [f"left out: {member.label}: {why}" for member, why in unanswered.values()]
        self.notices: tuple[str, ...] = (f"shared among {self.label}: {labels}", *missing)
        self._devices: dict[Place, Device] = {}
        self._wall_s = 0.0
        self._spent_s: defaultdict[str, float] = defaultdict(float)
        self.endings: dict[PointKey, str] = {}

    @property
    def spent_s(self) -> Mapping[str, float]:
        """Wall time, in seconds, that a device spent in each phase of the last job, on average.

        The phase `waiting` is the rest of the job's wall time. A device waits while it starts,
        until it gets a share, and at the end until all other devices are done.
        """
        workers = len(self._members)
        phases = {name: total_s / workers for name, total_s in self._spent_s.items()}
        return {**phases, "waiting": max(0.0, self._wall_s - sum(phases.values()))}

    def device_at(self, place: Place) -> Device:
        """Return a place's device, with its measured rates, or else the first device."""
        return self._devices.get(place, self.device)

    def renew(self) -> None:
        """Do nothing, because each share is measured in a new process."""

    def measure(self, job: Job, measurements: Measurements, keep: Keep, watcher: Watcher) -> None:
        """Divide the job among the workers. Raises PeerLostError if no worker is left."""
        started = perf_counter()
        self._wall_s = 0.0
        self._spent_s.clear()
        self.endings = {}
        unfinished = [point for point in job.points if not measurements.is_finished(point)]
        rounds, workers = job.sweep.timing.rounds, len(self._members)
        foreseen = job.forecast(unfinished[::workers])
        watcher.planned(job, self, len(unfinished) * rounds, foreseen)
        try:
            if unfinished:
                shares = share_out(job, unfinished, workers, self._kind)
                if job.strategy.is_race:
                    shares = [_continued(share, measurements) for share in shares]
                self._collect(shares, job, measurements, keep, watcher)
        finally:
            self._wall_s = perf_counter() - started

    def _collect(
        self,
        shares: Sequence[Share],
        job: Job,
        measurements: Measurements,
        keep: Keep,
        watcher: Watcher,
    ) -> None:
        """Submit the shares, and keep the new measurements until all shares are done."""
        client = self._client
        inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()  # calls from Dask's threads
        running = _Running(client, lambda future: inbox.put(partial(finish, future)))
        alive = _Alive(client)
        keys = set().union(*(share.keys for share in shares))
        visits, received = job.sweep.timing.rounds * len(keys), 0
        started = perf_counter()

        def receive(line: Any) -> None:
            nonlocal received
            measurement = _measurement(line, job)
            if not measurements.is_new(measurement):
                return
            left = max(1, visits - received)  # a share that is measured again adds visits
            left_s = (perf_counter() - started) / received * left if received else 0.0
            watcher.measuring(Visit(point=measurement.point, visits_left=left, left_s=left_s))
            received += 1
            keep(measurement)
            measurements.add(measurement)
            watcher.measured(measurement)

        def finish(future: Future) -> None:
            if future not in running.shares:  # another worker got the share of a lost worker
                return
            if not (result := _result(future)):
                running.move(future, alive.workers())
                return
            for line in result.lines:  # measurements that no event delivered
                receive(line)
            if result.error:
                alive.failed.add(result.address)
                if not (workers := alive.workers()):
                    raise result.error
                running.move(future, workers)
            else:
                running.end(future)
            self._remember(result, job)

        client.subscribe_topic(shares[0].topic, lambda event: inbox.put(partial(receive, event[1])))
        try:
            for share in shares:
                running.submit(share)
            while running.shares:
                if not alive.left_s:  # also while other workers send measurements
                    alive.look()
                    for future in alive.stuck(running):
                        running.move(future, alive.workers())
                try:
                    handle = inbox.get(timeout=alive.left_s)
                except Empty:
                    continue
                handle()
        finally:
            cancel(client, running.shares)

    def _remember(self, result: ShareResult, job: Job) -> None:
        """Keep a share's device, the time of each phase, and the reasons why races ended."""
        self.endings |= result.endings
        for name, seconds in result.spent_s.items():
            self._spent_s[name] += seconds
        if result.lines and result.device:
            place = Place.of(decode_line(result.lines[-1], job.point_of))
            self._devices[place] = result.device


def share_out(
    job: Job, unfinished: Sequence[Point], workers: int, kind: tuple[str, ...]
) -> list[Share]:
    """Divide the points into shares, with at least one share for each worker.

    A unit is a group of points that must be measured at the same place (`Strategy.unit`). If there
    are fewer units than workers, each unit is a share.
    """
    sweep, strategy, timing = job.sweep, job.strategy, job.sweep.timing
    common = strategy.common(job.points)
    compared = {point.problem_key for point in unfinished if point not in common}
    dealt_points = [p for p in unfinished if p not in common or p.problem_key not in compared]
    expected_s = job.forecast(unfinished).expected_s
    count = workers * max(1, math.ceil(expected_s / workers / SHARE_S))
    dealt = deal(dealt_points, count, strategy)
    if timing.budget_s is not None:  # a worker's budget is divided among its shares
        budget_s = timing.budget_s * workers / max(len(dealt), workers)
        timing = replace(timing, budget_s=budget_s)
    kernels = sweep.kernels and sweep.kernels.resolve()
    sent = replace(sweep, timing=timing, kernels=kernels, output=None, samples=None)
    topic = f"gpubench-{token_hex(8)}"
    shares = []
    for points in dealt:
        problems = {point.problem_key for point in points} & compared
        baselines = [point for point in common if point.problem_key in problems]
        keys = frozenset(point.key for point in (*points, *baselines))
        shares.append(Share(sent, strategy, keys, kind, topic))
    return shares


def deal(points: Sequence[Point], count: int, strategy: Strategy) -> list[list[Point]]:
    """Divide points into at most `count` shares. All points of a unit go into the same share.

    The units are dealt in turns: in each turn, every share gets one unit. The points of a kernel
    are listed by tile, and their costs fall or rise steeply along the list. So every second turn
    has the opposite order, and no share always gets the first unit of a turn.
    """
    units = list(grouped(points, strategy.unit).values())
    count = max(1, min(count, len(units)))
    dealt: list[list[Point]] = [[] for _ in range(count)]
    for index, unit in enumerate(units):
        turn, place = divmod(index, count)
        dealt[place if turn % 2 == 0 else count - 1 - place] += unit
    return dealt


def _continued(share: Share, measurements: Measurements) -> Share:
    """Return a copy of a share that has the earlier measurements of the share's races."""
    units = {key._replace(tile="") for key in share.keys}
    earlier = (
        encode_line(measurement)
        for by_point in measurements.by_place.values()
        for point, rounds in by_point.items()
        if point.key._replace(tile="") in units
        for measurement in rounds
    )
    return share._replace(earlier=tuple(earlier))


def _measurement(line: Any, job: Job) -> Measurement:
    """Decode a measurement that a worker sent. Raises PeerLostError if the data are invalid."""
    try:
        return decode_line(line, job.point_of)
    except (ValueError, TypeError) as error:
        raise PeerLostError(
            f"a worker sent data that is not a measurement: {first_line(error)}; {CONTINUES}"
        ) from None


def _result(future: Future) -> ShareResult | None:
    """Return the result of a share, or None if the result was lost with the worker that has it.

    Raises PeerLostError if the workers of the share died.
    """
    try:
        result: ShareResult | None = result_of(future)
    except PeerLostError as error:
        raise PeerLostError(f"a worker did not finish its points: {error}; {CONTINUES}") from error
    return result


class _Running:
    """The shares that the scheduler has, by future. A thread calls `on_end` when a future ends."""

    def __init__(self, client: Client, on_end: Callable[[Future], None]) -> None:
        self._client, self._on_end = client, on_end
        self.shares: dict[Future, Share] = {}
        self.allowed: dict[Future, list[str]] = {}
        """The workers that may measure a share. All workers may measure the other shares."""

    def submit(self, share: Share, workers: list[str] | None = None) -> None:
        """Give a share to one of these workers. If there are none, any worker may measure it."""
        future = self._client.submit(measure_share, share, pure=False, workers=workers or None)
        self.shares[future] = share
        if workers:
            self.allowed[future] = workers
        future.add_done_callback(self._on_end)

    def end(self, future: Future) -> Share:
        """Remove a future. Return its share."""
        self.allowed.pop(future, None)
        return self.shares.pop(future)

    def move(self, future: Future, workers: list[str]) -> None:
        """Submit the share of a future again, and cancel the future."""
        self.submit(self.end(future), workers)
        cancel(self._client, [future])


class _Alive:
    """Finds shares whose workers are lost. Raises PeerLostError if no worker is left."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._heartbeats = Heartbeats()
        self._present: set[str] = set()
        self._silent: set[str] = set()
        self.failed: set[str] = set()
        """The workers that have returned an error."""

        self._last_alive_s = self._looked_s = perf_counter()

    @property
    def left_s(self) -> float:
        """Time in seconds until the next search for silent workers, or 0 if the search is due."""
        return max(0.0, self._looked_s + LOOK_EVERY_S - perf_counter())

    def look(self) -> None:
        """Search for silent workers. Raises PeerLostError if no other worker is left."""
        now_s = perf_counter()
        try:
            workers = present(self._client)
        except PeerLostError as error:
            raise PeerLostError(f"{error}; {CONTINUES}") from None
        self._present = set(workers)
        self._silent = self._heartbeats.silent(workers)
        if self._present - self._silent:
            self._last_alive_s = now_s
        elif self._silent:
            raise PeerLostError(
                f"worker {min(self._silent)} has been silent for {SILENT_S:g} s, and no other "
                f"worker is left; {CONTINUES}"
            )
        elif self._client.status in {"closed", "closing"} or (
            now_s - self._last_alive_s > NO_WORKER_LIMIT_S
        ):
            raise PeerLostError(f"no worker is left; {CONTINUES}")
        self._looked_s = perf_counter()  # the scheduler may have answered slowly

    def stuck(self, running: _Running) -> list[Future]:
        """Return the futures that no worker measures, according to the last search.

        The scheduler gave these futures to silent workers, also after a worker became silent, or
        all workers that are allowed to measure them have left.
        """
        keys: set[Any] = set()
        if self._silent:
            try:
                processing = within(ANSWER_S, "the scheduler", self._client.processing)
            except OSError:  # the connection has ended during the call
                processing = {}
            keys = {key for worker in self._silent for key in processing.get(worker, ())}
        gone = {
            future
            for future, workers in running.allowed.items()
            if self._present and self._present.isdisjoint(workers)
        }
        return [x for x in running.shares if x.key in keys or x in gone]

    def workers(self) -> list[str]:
        """Return the workers that have not failed and are not silent."""
        return [x for x in present(self._client) if x not in self.failed | self._silent]
