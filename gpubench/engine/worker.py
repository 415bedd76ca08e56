"""Measures the points of a job in child processes. A crash or a hang costs one point, not the job.

`Worker` decides what is measured again after a fault, and which checks a result passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from secrets import randbelow, randbits
from types import TracebackType
from typing import Self

from gpubench.engine.answers import library_note
from gpubench.engine.child.requests import (
    Begin,
    Compile,
    Measure,
    MeasureCeilings,
    MeasurePairs,
    MeasureParts,
    ProbeOutputs,
    Repeat,
    RunAtUnusualSize,
    WarmUp,
)
from gpubench.engine.child.supervisor import START_LIMIT_S, Supervisor, recorded_variables
from gpubench.engine.judge.clock import require_time
from gpubench.engine.judge.probe import probe_problem, require_exact_outputs, unusual_problem
from gpubench.engine.judge.verdict import (
    Verdict,
    WrongError,
    as_judged,
)
from gpubench.engine.lock import DeviceLock
from gpubench.engine.on_new_operands import OnNewOperands
from gpubench.engine.operands import SEED_BITS
from gpubench.engine.runner import Instance, instance_of
from gpubench.errors import ChildLostError
from gpubench.model import (
    CallVariant,
    Device,
    Measurement,
    PairedTimes,
    Parts,
    Point,
    Status,
    Timer,
    Timing,
    Variant,
)
from gpubench.plan.registry import is_ours, owner_of

COMPILE_LIMIT_S = 300.0
"""Time limit for one more kernel to be compiled, unless --point-limit is given. The largest
register tiles take half a minute."""

EXAMINATIONS = 3
"""Number of measurements in a row whose times must all be wrong, where load can be the cause."""

MAX_JUDGED_BYTES = 2**31
"""Results of larger problems are judged in the child only."""

MAX_FAULTS = 3
"""Number of consecutive points of a variant that may end their child, twice each. The variant's
other points are skipped after that."""


class Worker:
    """Measures points in a child process, which is replaced if a point ends it.

    With `ahead`, the next child starts while this one measures, and waits before it opens the
    device, if the backend has a `load`. That disturbs the host, so it is for sweeps on hosts that
    have other work anyway.

    Raises DeviceUnavailableError if the device or the timer is missing, DeviceBusyError if another
    sweep holds the GPU, and ChildLostError if no process can be started that measures.
    """

    def __init__(self, device: str, timer: Timer, *, ahead: bool = False) -> None:
        self._child = Supervisor(device, timer, ahead=ahead)
        self._last: Point | None = None
        """The point that this child measured last."""

        self._policy: tuple[Timing, int] | None = None
        self._measured: dict[Point, Measurement] = {}
        """The last measurement of each point, which a new child need not verify again."""

        self._child_seed = randbits(SEED_BITS)
        """Seed of the operands of the user's CUDA sources in this child."""

        self._owner = ""
        """The variant that has this child to itself (`owner_of`); empty: the child is shared."""

        self._fragile: set[Variant] = set()
        """Variants that ended a child at an unusual size. Their other tiles are not launched there,
        because a new child takes seconds."""

        self._examined_notes: dict[Instance, str] = {}
        """What an unusual size showed of each instance of a user's kernel."""

        self._faults: Counter[str] = Counter()
        """For each variant, the number of its points in a row that ended their children."""

        try:
            opened = self._child.open()
            found = opened.device
            self._child.device_name = f"{found.backend}:{found.index}"  # also for later children
            facts = found.facts | {"environment": ";".join(recorded_variables()) or None}
            self._device = replace(found, facts=facts)
            self._lock = DeviceLock(self._device)
            unlocked = self._lock.take()
        except BaseException:
            self._child.end_all()
            raise
        self._notices = (*filter(None, (self._child.unkept, unlocked)), *opened.notices)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._child.end_all()
        self._lock.give_back()

    @property
    def device(self) -> Device:
        """The device as the first child described it."""
        return self._device

    @property
    def notices(self) -> tuple[str, ...]:
        """The first child's notices, and the notices about the cache and the lock."""
        return self._notices

    @property
    def spent_s(self) -> Mapping[str, float]:
        """Wall time of this job by phase: of all children, and to start them."""
        return self._child.spent_s

    def begin(self, timing: Timing, seed: int, verified: Sequence[Measurement] = ()) -> None:
        """Send the policy of a job to the child. Later children get the same policy."""
        self._child.forget_times()
        self._policy = timing, seed
        self._faults.clear()
        self._measured = {measurement.point: measurement for measurement in verified}
        if not self._child.has_child:
            self._child.open()
        self._child.request(Begin(timing=timing, seed=seed))

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Compile ahead. If that ends the child, each point is compiled when it is measured.

        Functions that need a process of their own are compiled there, when they are measured.
        """
        if len({owner_of(point.variant) for point in points}) > 1:
            points = [point for point in points if not owner_of(point.variant)]
        limit_s = (self._policy and self._policy[0].point_limit_s) or COMPILE_LIMIT_S
        with suppress(ChildLostError):
            self._child.request(Compile(points=tuple(points)), limit_s, on_built)

    def warm_up(self) -> None:
        """Warm up in this child. A later child warms up when it starts."""
        if self._child.has_child:
            self._child.request(WarmUp())

    def ceilings(self, dtypes: Sequence[str], kept: bool = False) -> dict[str, float]:
        """Measure the device's highest rates in the child."""
        self._make_ready()
        return self._child.request(MeasureCeilings(dtypes=tuple(dtypes), kept=kept))

    def parts(self) -> Parts:
        """Measure fixed work on each part of the device, in the child."""
        self._make_ready()
        return self._child.request(MeasureParts())

    def next_round(self) -> None:
        """End the child. The next point starts another."""
        self._child.end()

    def measure(self, point: Point, wall_limit_s: float | None = None) -> Measurement:
        """Measure in the child. A fault that ends the child becomes an `error` with its cause.

        The point is first tried once more, in a fresh child, because an earlier kernel may have
        written beyond its operands. If the point is right there, the reason names that kernel.
        """
        name = point.variant.name
        if self._faults[name] >= MAX_FAULTS:
            return Measurement(
                point=point,
                status=Status.SKIPPED,
                reason=f"{MAX_FAULTS} points of {name} in a row took their process down",
            )
        before = self._last if self._child.has_child else None
        result, lost = self._attempt(point, wall_limit_s)
        if lost:
            why = result.reason
            result, lost = self._attempt(point, wall_limit_s)
            if lost:
                self._faults[name] += 1
            elif result.status == Status.OK:
                suspect = f"; at fault: {before.label}, measured before it, or it" if before else ""
                reason = f"right in a second process; the first one {why}{suspect}"
                result = replace(result, reason=reason)
        for left in reversed(range(EXAMINATIONS)):
            if result.status != Status.OK or is_ours(point.variant):
                break
            examined, verdict = self._examined(result)
            if not (left and verdict.may_be_load):
                result = examined
                break
            result, _ = self._attempt(point, wall_limit_s)
        if result.status == Status.OK:
            self._faults[name] = 0
            self._measured[point] = result
        return result

    def _examined(self, result: Measurement) -> tuple[Measurement, Verdict]:
        """Return the measurement of a user's kernel as this process judges it, and the verdict.

        A function could change the checks and the clock in its own process. So in every round its
        results are compared here, on operands of seeds that are drawn here, and its time by this
        clock. The clock also examines measurements of CUDA sources (`Timing.examined_in`).
        """
        point = result.point
        try:
            is_function = isinstance(point.variant, CallVariant)
            examined_in = self._policy[0].examined_in if self._policy else 1
            if is_function or point not in self._measured or randbelow(examined_in) == 0:
                ratio = self._clock_ratio(point, result)
                if is_function:
                    self._require_exact(point, result.seed or 0)
                if (is_function or ratio is None) and point.problem.bytes <= MAX_JUDGED_BYTES:
                    request = partial(self._child.request, limit_s=self._hang_s)
                    new = OnNewOperands(request, self._child.pid, result, self._device).judge()
                    ratio = new if ratio is None else ratio
                result = replace(result, clock_ratio=ratio)
        except WrongError as wrong:
            return as_judged(result, wrong.verdict), wrong.verdict
        except ChildLostError as lost:
            failed = replace(result, status=Status.ERROR, reason=lost.why, series=None)
            return failed, Verdict()
        notes = _joined(result.notes, library_note(result), self._note_of_unusual_size(point))
        return replace(result, notes=notes), Verdict()

    def _require_exact(self, point: Point, seed: int) -> None:
        """Raise WrongError for a function's result that is wrong on the operands of a probe."""
        contents = self._child.request(ProbeOutputs(point=point), self._hang_s)
        at = probe_problem(point, self._device.compute_capability)
        require_exact_outputs(contents, at, seed)

    def _clock_ratio(self, point: Point, result: Measurement) -> float | None:
        """Return the time by this process's clock over the reported time. Raises WrongError."""
        limit_s = self._hang_s
        return require_time(
            result.series.median_us if result.series else 0.0,
            lambda count: self._child.request(Repeat(point=point, launches=count), limit_s),
            self._child.pid,
            by_events=point.timer != Timer.HOST,
        )

    def _note_of_unusual_size(self, point: Point) -> str:
        """Return what an unusual size shows, once for each instance of a user's kernel.

        A kernel that does not check its bounds is right only at some sizes. The launch may end the
        child, once for each variant.
        """
        instance = instance_of(point)
        if instance in self._examined_notes:
            return self._examined_notes[instance]
        note = ""
        try:
            if point.variant not in self._fragile:
                note = self._child.request(RunAtUnusualSize(point=point), self._hang_s)
                if not self._child.usable:
                    self._fragile.add(point.variant)
                    self._child.end()
        except ChildLostError as lost:
            self._fragile.add(point.variant)
            unusual = unusual_problem(point, self._device.compute_capability)
            note = f"right at this size; {lost.why} at {unusual.size if unusual else ''}"
        self._examined_notes[instance] = note
        return note

    @property
    def _hang_s(self) -> float:
        return self._policy[0].hang_s if self._policy else START_LIMIT_S

    def measure_pairs(self, point: Point, library: Point) -> PairedTimes | str:
        """Measure a kernel and a library in turns in the child; return a fault as the reason."""
        self._make_ready()
        try:
            return self._child.request(MeasurePairs(point=point, library=library), self._hang_s)
        except ChildLostError as lost:
            return lost.why

    def _attempt(self, point: Point, wall_limit_s: float | None) -> tuple[Measurement, bool]:
        """Measure in this or a new child; return the result, and whether the child was lost."""
        if self._last and self._owner != owner_of(point.variant):
            self._child.end()
        self._owner = owner_of(point.variant)
        self._make_ready()
        started = datetime.now(UTC).isoformat(timespec="microseconds")
        limit_s = self._hang_s
        earlier = self._measured.get(point)
        try:
            request = Measure(
                point=point,
                wall_limit_s=wall_limit_s,
                earlier=earlier,
                seed=self._seed_of(point.variant),
            )
            result = self._child.request(request, limit_s)
        except ChildLostError as lost:
            result = Measurement(
                point=point, status=Status.ERROR, reason=lost.why, started_utc=started
            )
            return result, True
        self._last = point
        if not self._child.usable:
            self._child.end()
        return result, not self._child.usable

    def _seed_of(self, variant: Variant) -> int | None:
        """Return the seed of the operands of a measurement that begins now. None: the job's.

        A function gets new operands in each measurement. CUDA sources, which cannot see what their
        process keeps, share operands during the life of a child, because it takes long to make
        them.
        """
        if is_ours(variant):
            return None
        return randbits(SEED_BITS) if owner_of(variant) else self._child_seed

    def _make_ready(self) -> None:
        """Start a child if there is none. The kernels that it needs are in the cache on disk."""
        if not self._child.has_child:
            self._last = None
            self._child.open()
            self._child_seed = randbits(SEED_BITS)
            if self._policy:
                timing, seed = self._policy
                self._child.request(Begin(timing=timing, seed=seed))
            self._child.request(WarmUp())


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))
