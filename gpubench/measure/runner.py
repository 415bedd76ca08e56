"""A point becomes a measurement: prepare, estimate, verify, time."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter, sleep
from typing import Any

from gpubench.backends import Backend, Kernel, Operands
from gpubench.errors import CompileError, DoesNotFitError, LaunchError
from gpubench.hardware.host import HostWatch
from gpubench.measure.operands import Reference, make_inputs, make_reference, verifying_bytes
from gpubench.measure.sampling import best_threads, collect
from gpubench.measure.verify import poison, relative_error, why_wrong
from gpubench.model import Cache, Fill, Measurement, Point, Problem, Scope, Status, Timing

PROBES = (64, 16, 4)
"""A slow launch is foreseen by launches on 1/64, 1/16, 1/4 of the rows."""

HOPELESS = 4.0
"""A probe that foresees this many times the limit is believed; a nearer one is repeated larger."""

MEMORY_SHARE = 0.5
"""Operands of earlier problems are kept while they fill no more than this of the free memory."""

SLOWDOWNS = ("thermal slowdown", "hardware slowdown")
"""States in which a time says nothing about the kernel. (A power cap is normal: it is marked.)"""

COOLING_S = (1.0, 4.0, 10.0)
"""Waits before a point that met a slowdown is timed again; after the last it is kept and marked."""


class Runner:
    """Measures points on a backend, keeping operands and verdicts between rounds."""

    def __init__(
        self,
        backend: Backend,
        timing: Timing,
        seed: int,
        sleep: Callable[[float], None] = sleep,
    ) -> None:
        self._backend = backend
        self._timing = timing
        self._seed = seed
        self._sleep = sleep
        self._loaded: OrderedDict[tuple[Problem, Fill, bool], Operands] = OrderedDict()
        self._references: dict[tuple[Problem, Fill], Reference] = {}
        self._verified: dict[Point, float] = {}
        self._expected_us: dict[Point, float] = {}
        self._first_us: dict[Point, float] = {}
        self._threads: dict[Point, int] = {}
        self.spent_s: defaultdict[str, float] = defaultdict(float)
        """Wall time by phase."""

    def measure(
        self, point: Point, wall_limit_s: float | None = None, earlier: Measurement | None = None
    ) -> Measurement:
        """Measure a point once; what goes wrong becomes its status and reason.

        `wall_limit_s` is the wall time that a budget leaves for it: sampling stops there once it
        has the fewest samples allowed. `earlier` is what came of it in another process, where it
        was verified.
        """
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        result = Measurement(point=point, status=Status.OK, started_utc=started)
        host = HostWatch()
        try:
            kernel = self._bind(point)
            launch = kernel.launch and replace(kernel.launch, next_launches=(), tensor_maps=())
            result = replace(
                result, resources=kernel.resources, launch=launch, algorithm=kernel.algorithm
            )
            if point not in self._verified and earlier is not None:
                self._take_over(point, earlier)
            if point not in self._verified:
                result = self._verify(result, kernel)
                if result.status == Status.WRONG:
                    # A kernel before it may have written into its operands: once more, on new ones.
                    self._forget_operands()
                    kernel = self._bind(point)
                    result = self._verify(replace(result, status=Status.OK, reason=""), kernel)
                if result.status == Status.WRONG:
                    self._forget_operands()  # and this one may have written into others'
                if result.status != Status.OK:
                    return result
            with self.phase("sampling"):
                kernel = self._on_best_threads(point, kernel)
                result = self._time(result, kernel, wall_limit_s)
            if kernel.thread_counts or point.scope == Scope.END_TO_END:
                result = replace(result, host=host.read())
            threads = next(iter(kernel.thread_counts), None)
            return replace(result, max_relative_error=self._verified[point], threads=threads)
        except DoesNotFitError as error:
            return replace(result, status=Status.SKIPPED, reason=str(error))
        except (CompileError, LaunchError) as error:
            return replace(result, status=Status.ERROR, reason=str(error))

    def _bind(self, point: Point) -> Kernel:
        with self.phase("operands"):
            return self._backend.bind(point, self._operands(point))  # type: ignore[no-any-return]

    def _take_over(self, point: Point, earlier: Measurement) -> None:
        """Trust another process' verdict; launch on few rows, since here it never ran."""
        if earlier.series is None or earlier.max_relative_error is None:
            return
        rows = -(-point.problem.m // PROBES[0])
        self._backend.sample(self._backend.bind(point, self._operands(point), rows=rows), 1, 1)
        self._verified[point] = earlier.max_relative_error
        self._expected_us[point] = earlier.series.median_us
        if earlier.threads:
            self._threads[point] = earlier.threads

    def _forget_operands(self) -> None:
        self._loaded.clear()
        self._references.clear()

    def _operands(self, point: Point) -> Operands:
        """The operands of a point's problem, loaded now or in an earlier round."""
        problem, cold = point.problem, point.cache == Cache.COLD
        key = (problem, point.operands, cold)
        if key in self._loaded:
            self._loaded.move_to_end(key)
            return self._loaded[key]
        needed = self._backend.bytes_needed(problem, cold=cold) + verifying_bytes(problem)
        while self._loaded and needed > MEMORY_SHARE * self._backend.bytes_free():
            (evicted, fill, _), _ = self._loaded.popitem(last=False)
            self._references.pop((evicted, fill), None)
        free = self._backend.bytes_free()
        if needed > free:
            raise DoesNotFitError(f"needs {needed:,} bytes of memory, {free:,} are free")
        inputs = make_inputs(problem, self._seed, point.operands)
        self._loaded[key] = self._backend.load(problem, inputs, cold=cold)
        return self._loaded[key]

    def _reference(self, point: Point, operands: Operands) -> Reference:
        """What the result must be; made when a point of the problem is verified first."""
        key = point.problem, point.operands
        if key not in self._references:
            reference = make_reference(self._backend.xp, point.problem.op, *operands.inputs)
            self._references[key] = reference
        return self._references[key]

    def _verify(self, result: Measurement, kernel: Kernel) -> Measurement:
        """The result with its error; skipped if a launch would be too slow, or wrong."""
        with self.phase("verifying"):
            return self._verify_on(result, kernel, self._operands(result.point))

    def _verify_on(self, result: Measurement, kernel: Kernel, operands: Operands) -> Measurement:
        point = result.point
        reference = self._reference(point, operands)  # before a launch can spoil operands
        if reason := self._too_slow(point, operands):
            return replace(result, status=Status.SKIPPED, reason=reason)
        poison(operands.output)
        took_us = self._backend.run(kernel)
        precision = point.problem.precision
        error = relative_error(
            self._backend.xp, operands.output, reference, precision.result_roundoff
        )
        result = replace(result, max_relative_error=error)
        if reason := why_wrong(error, precision.tolerance):
            return replace(result, status=Status.WRONG, reason=reason)
        self._verified[point] = error
        if took_us is not None and took_us / 1e6 > self._timing.slow_launch_s:
            # A right and slow launch is a sample already: on a CPU it would cost seconds again.
            self._first_us[point] = took_us
        return result

    def _too_slow(self, point: Point, operands: Operands) -> str | None:
        """Why a launch would pass the limit, foreseen from launches on fewer rows."""
        limit_s, m = self._timing.launch_limit_s, point.problem.m
        estimate_s = 0.0
        for part in PROBES:
            rows = -(-m // part)
            probe = self._backend.bind(point, operands, rows=rows)
            estimate_s = min(self._backend.sample(probe, 1, 1)) * m / rows / 1e6
            if estimate_s > limit_s:  # a first launch may include loading: look again
                estimate_s = min(self._backend.sample(probe, 1, 1)) * m / rows / 1e6
            if estimate_s <= limit_s:
                self._expected_us[point] = estimate_s * 1e6
                return None
            if estimate_s > HOPELESS * limit_s:
                break
        return f"estimated {estimate_s:.3g} s a launch, over the limit of {limit_s:g} s"

    def _on_best_threads(self, point: Point, kernel: Any) -> Kernel:
        """The kernel on as many CPU threads as serve it best, chosen in the first round."""
        counts: tuple[int, ...] = kernel.thread_counts
        if len(counts) > 1:
            if point not in self._threads:

                def time_us(count: int) -> float:
                    on = replace(kernel, thread_counts=(count,))
                    return float(self._backend.sample(on, 1, 1)[0])

                slow_us = 1e6 * self._timing.slow_launch_s
                self._threads[point] = best_threads(time_us, counts, slow_us)
            if self._threads[point] != counts[0]:
                self._first_us.pop(point, None)
            kernel = replace(kernel, thread_counts=(self._threads[point],))
        return kernel  # type: ignore[no-any-return]

    def _time(self, result: Measurement, kernel: Kernel, wall_limit_s: float | None) -> Measurement:
        """The result with its series; taken again after a pause if the device was slowed down."""
        timing = self._timing
        if wall_limit_s is not None:
            timing = replace(
                timing,
                max_wall_s=min(timing.max_wall_s, wall_limit_s * timing.rounds),
                min_device_s=min(timing.min_device_s, wall_limit_s * timing.rounds),
            )
        for pause_s in (*COOLING_S, None):
            before = self._backend.health()
            series = collect(
                lambda launches, count: self._backend.sample(kernel, launches, count),
                timing,
                kernel.max_launches,
                self._expected_us[result.point],
                self._first_us.pop(result.point, None),
            )
            result = replace(result, series=series, before=before, after=self._backend.health())
            slowed = set(SLOWDOWNS) & {*result.before.throttle, *result.after.throttle}
            if not slowed or pause_s is None:
                break
            self._sleep(pause_s)
        return result

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a phase."""
        started = perf_counter()
        try:
            yield
        finally:
            self.spent_s[name] += perf_counter() - started
