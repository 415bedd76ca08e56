"""Measures the points of a job in child processes. A crash or a hang costs one point, not the job.

`Worker` decides what is measured again after a fault, and in which process.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import randbits
from typing import Self

from gpubench.backends import backends
from gpubench.backends.cpu.gauge import highest_rates
from gpubench.engine.child.supervisor import START_LIMIT_S, recorded_variables, supervisor_of
from gpubench.engine.device_lock import lock_device
from gpubench.engine.judge.verdict import as_lost
from gpubench.engine.measure.examiner import Examiner
from gpubench.engine.measure.runner import Runner
from gpubench.engine.measure.walled import Walled
from gpubench.engine.operands.make import SEED_BITS
from gpubench.engine.outside.examination import Examination
from gpubench.engine.outside.wall import Wall
from gpubench.errors import ChildHungError, ChildLostError
from gpubench.model import (
    CallVariant,
    Measurement,
    PairedTimes,
    Parts,
    Point,
    Status,
    Timer,
    Timing,
    Variant,
)
from gpubench.plan import description_process
from gpubench.plan.scrutiny import owner_of, scrutiny_of

COMPILE_LIMIT_S = 300.0
"""Time limit for compiling one kernel, unless --point-limit is given. Kernels with the largest
register tiles take half a minute to compile."""

MAX_AHEAD = 4
"""Maximum number of children that are started ahead. A child that waits takes 0.2 GB of memory."""

EXAMINATIONS = 3
"""Number of wrong measurements in a row after which a time is judged wrong, if other work on the
machine may be the cause."""

MAX_FAULTS = 3
"""If this number of consecutive points of a variant end their child process, each in two attempts,
the variant's other points are skipped."""


class Worker:
    """Measures points in a child process. If a point ends the child, another child replaces it.

    `kernels` is the folder of the user's kernels, if such kernels are measured.

    Raises DeviceUnavailableError if the device or the timer is missing, DeviceBusyError if another
    sweep uses the GPU, and ChildLostError if no measuring process can be started.
    """

    def __init__(self, device: str, timer: Timer, kernels: Path | None = None) -> None:
        self._child, self._wall = supervisor_of(device, timer, kernels), Wall(device)
        self._is_own = kernels is None  # whether all kernels are gpubench's own
        self._lock = ExitStack()
        self._last: Point | None = None  # the point that this child launched last
        self._timing, self._seed = Timing(), 0  # the policy of the job
        self._measured: dict[Point, Measurement] = {}
        """The last right measurement of each point. A new child need not verify these points
        again."""

        self._child_seed = randbits(SEED_BITS)
        """Seed of the operands of the user's CUDA sources in this child."""

        self._owners = set[str]()  # owners of the job's points (`owner_of`)
        self._has_torch = False  # whether all functions of the job use torch
        self._uses_wall = False  # whether other processes keep outputs of the job's functions

        self._faults: Counter[str] = Counter()
        """Maps a variant's name to how many of its points in a row ended their child processes."""

        try:
            opened = self._child.open()
            environment = {"environment": ";".join(recorded_variables()) or None}
            self.device = replace(opened.device, facts=opened.device.facts | environment)
            """The device as the first child described it."""

            name = f"{self.device.backend}:{self.device.index}"
            self._child.device_name = name  # also for later children
            self._wall.use_device(name)

            shares_files = backends()[self.device.backend].host_arrays
            keep = None if shares_files else self._wall.keep
            self._examination = Examination(self._child, self.device, keep)
            unlocked = lock_device(self.device, self._lock)
        except BaseException:
            self.__exit__()
            raise
        self.notices = (*filter(None, (self._child.unkept, unlocked)), *opened.notices)
        """The notices about the cache and the lock, and the notices of the first child."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end_all()
        self._wall.end()
        self._lock.close()

    @property
    def spent_s(self) -> Mapping[str, float]:
        """Wall time, in seconds, that all children together spent in each phase of this job.

        The phase `starting` is the time to start the children.
        """
        return self._child.spent_s

    def begin(self, timing: Timing, seed: int, verified: Sequence[Measurement] = ()) -> None:
        """Send a job's timing policy and seed to the child. Later children get the same values.

        The points of the measurements in `verified` need not be verified again.
        """
        self._child.forget_times()
        self._timing, self._seed = timing, seed
        self._faults.clear()
        self._measured = {measurement.point: measurement for measurement in verified}
        if self._child.child is None:
            self._last = None
            self._child.open()
        self._child.request(START_LIMIT_S, Runner.begin, timing, seed)

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Compile kernels before they are measured, and start the children of later rounds.

        If compiling ends the child, each point is compiled when it is measured. A function that
        needs a process of its own is compiled in that process. If the job also has other points,
        the function is compiled when it is measured.
        """
        self._owners = {owner_of(point.variant) for point in points}
        self._has_torch = all(
            isinstance(x.variant, CallVariant) and x.variant.tensors == "torch" for x in points
        )
        uniform = (point for point in points if point.problem.operation.is_uniform)
        self._uses_wall = any(owner_of(point.variant) for point in uniform)
        shared = [point for point in points if not owner_of(point.variant)]
        limit_s = self._timing.point_limit_s or COMPILE_LIMIT_S
        later = sorted(self._owners) * self._timing.rounds
        if self._child.owner in later:
            later.remove(self._child.owner)
        with self._starting_ahead(later), suppress(ChildLostError):
            if shared:
                self._child.compile(shared, limit_s, on_built)
        if len(self._owners) == 1 and not shared:
            with suppress(ChildLostError):
                self._make_ready_for(points[0].variant)
                self._child.compile(points, limit_s, on_built)

    @contextmanager
    def _starting_ahead(self, owners: Sequence[str]) -> Iterator[None]:
        """Start a child for each owner, but at most `MAX_AHEAD`, while the `with` block runs."""
        backend, owners = self.device.backend, owners[:MAX_AHEAD]
        with ExitStack() as ahead:
            ahead.enter_context(self._child.starting_ahead(backend, owners, torch=self._has_torch))
            if self._uses_wall:
                ahead.enter_context(self._wall.starting_ahead(backend))
            yield

    def warm_up(self) -> None:
        """Warm up the device in this child. A later child warms up the device when it starts."""
        if self._child.child:
            self._child.request(START_LIMIT_S, Runner.warm_up)

    def ceilings(self, dtypes: Sequence[str], kept: bool = False) -> dict[str, float]:
        """Measure the device's highest rates in the child.

        On a CPU, a child that never runs foreign code measures the rates. With `kept`, rates of a
        CPU may come from the user's cache, if they are less than a day old. This process writes the
        cache, because a child that runs foreign code may write no file of the user. If a sweep with
        foreign code measures a rate again, the rate is not written.
        """

        def measure(names: Sequence[str]) -> dict[str, float]:
            if self.device.backend == "cpu" and not self._is_own:
                return self._wall.ceilings(names)
            self._make_ready()
            return self._child.request(START_LIMIT_S, Runner.ceilings, tuple(names))

        if self.device.backend == "cpu" and (kept or self._is_own):
            return highest_rates(self.device, dtypes, measure, kept=kept)
        return measure(dtypes)

    def parts(self) -> Parts:
        """Measure, in the child, how long fixed work takes on each part of the device."""
        self._make_ready()
        return self._child.request(START_LIMIT_S, Runner.parts)

    def empty_launch_us(self) -> dict[str, float]:
        """Measure, in the child, how long a launch of an empty kernel takes by each clock."""
        self._make_ready()
        return self._child.request(START_LIMIT_S, Runner.empty_launch_us)

    def next_round(self) -> None:
        """End the child. The next point starts another child."""
        self._child.end()
        if len(self._owners) > 1:
            with self._starting_ahead(sorted(self._owners)):
                pass

    def measure(self, point: Point, wall_limit_s: float | None = None) -> Measurement:
        """Measure a point in the child. If faults end two children, the result is an `error`.

        After the first fault, the point is measured once more, in a new child, because an earlier
        kernel may have written beyond its operands. If the point is right in the new child, the
        reason names the kernel that the first child had measured before the point.
        """
        name = point.variant.name
        if self._faults[name] >= MAX_FAULTS:
            return Measurement(
                point=point,
                status=Status.SKIPPED,
                reason=f"{MAX_FAULTS} points of {name} in a row ended their process",
            )
        is_shared = self._child.child and self._child.owner == owner_of(point.variant)
        before = self._last if is_shared else None
        result, lost = self._attempt(point, wall_limit_s)
        if lost:
            why = result.reason
            if before or lost != ChildHungError:  # else the point would hang again
                result, lost = self._attempt(point, wall_limit_s)
            if lost:
                self._faults[name] += 1
            elif result.status == Status.OK:
                suspect = (
                    f"; the fault is in {before.label}, which was measured before, or in the point "
                    "itself"
                    if before
                    else ""
                )
                reason = f"right in a second process; the first process {why}{suspect}"
                result = replace(result, reason=reason)
        if point.timer == Timer.OUTSIDE:
            result = self._wall.measure(self._child, result, self._timing, wall_limit_s)
        if scrutiny_of(point.variant).is_examined:
            result = self._examined(result, wall_limit_s)
        elif any(self._owners) and self._timing.examined_in == 1:  # with users' functions
            result = self._examination.with_clock_ratio(result, self._timing, self._seed)
        if result.status == Status.OK:
            self._faults[name] = 0
            self._measured[point] = result
        return result

    def _examined(self, result: Measurement, wall_limit_s: float | None) -> Measurement:
        """Judge the measurement of a user's kernel, and measure again if the verdict is doubtful.

        A verdict is doubtful if other work on the machine may have disturbed the measurement.
        """
        point, attempts = result.point, 1
        while result.status == Status.OK:
            is_first = point not in self._measured
            judged, may_be_load = self._examination.judge(result, self._timing, is_first=is_first)
            if not may_be_load or attempts == EXAMINATIONS:
                return judged
            result, _ = self._attempt(point, wall_limit_s)
            attempts += 1
        return result

    def measure_pairs(self, point: Point, library: Point) -> PairedTimes | str:
        """Measure a kernel and a library in turns, in the child. Return times, or a reason."""
        self._make_ready_for(point.variant)
        try:
            hang_s = self._timing.hang_s
            return self._child.request(hang_s, Runner.measure_pairs, point, library)
        except ChildLostError as lost:
            return lost.why

    def row_digests(
        self, point: Point, rows: int, seed: int, launches: int
    ) -> list[tuple[str, str]]:
        """Launch on `rows` rows in the child, and return digests (`Examiner.row_digests`).

        Raises ChildLostError.
        """
        self._make_ready_for(point.variant)
        self._last = point  # a function of another owner gets another child
        hang_s = self._timing.hang_s
        return self._child.request(hang_s, Examiner.row_digests, point, rows, seed, launches)

    def _attempt(
        self, point: Point, wall_limit_s: float | None
    ) -> tuple[Measurement, type[ChildLostError] | None]:
        """Measure a point once. Return the measurement, and the error if the point ended the child.

        If no child is running, a new child is started.
        """
        self._make_ready_for(point.variant)
        started = datetime.now(UTC).isoformat(timespec="microseconds")
        try:
            result = self._child.request(
                (self._timing.point_limit_s or COMPILE_LIMIT_S, self._timing.hang_s),
                Runner.measure,
                point,
                wall_limit_s,
                self._measured.get(point),
                self._seed_of(point.variant),
            )
        except ChildLostError as lost:
            blank = Measurement(point=point, status=Status.ERROR, started_utc=started)
            return as_lost(blank, lost), type(lost)
        self._last = point
        if not self._child.usable:
            self._child.end()
        return result, None if self._child.usable else ChildLostError

    def _seed_of(self, variant: Variant) -> int | None:
        """Return the seed of the next measurement's operands. None means the seed of the job.

        A function gets new operands in each measurement. CUDA sources cannot read what their
        process keeps, so they share operands until the child ends. Sharing saves time, because
        making operands takes long.
        """
        scrutiny = scrutiny_of(variant)
        if not scrutiny.has_own_operands:
            return None
        return randbits(SEED_BITS) if scrutiny.has_own_process else self._child_seed

    def _make_ready_for(self, variant: Variant) -> None:
        """Ensure that a child exists for the variant. A user's function has a child of its own.

        No other foreign code runs when this method returns. Otherwise a description could slow down
        the kernels with which its kernel is compared. Raises ChildLostError.
        """
        description_process.end_between_requests()
        owner = owner_of(variant)
        if self._child.owner != owner:
            self._child.end()
        self._make_ready(owner)
        if owner and Timer.OUTSIDE in backends()[self.device.backend].timers:
            self._child.request(START_LIMIT_S, Walled.give_up_rights)

    def _make_ready(self, owner: str = "") -> None:
        """Start a child for this owner if no child is running.

        The compiled kernels that the child needs are in the cache on disk.
        """
        if self._child.child is None:
            self._last = None
            self._child.open(owner)
            self._child_seed = randbits(SEED_BITS)
            self._child.request(START_LIMIT_S, Runner.begin, self._timing, self._seed)
            self._child.request(START_LIMIT_S, Runner.warm_up)
