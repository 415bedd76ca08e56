"""A point becomes a measurement: prepare, estimate, verify, time, verify what was timed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter, sleep
from typing import Any

from gpubench.backends import Backend, Kernel
from gpubench.backends.rotation import OperandSets
from gpubench.engine.loaded import Loaded
from gpubench.engine.probe import kernels_of, make_probes, probe_problems, require_exact
from gpubench.engine.sampling import Sample, best_threads, collect
from gpubench.engine.verify import Check, WrongError, poison
from gpubench.errors import CompileError, DoesNotFitError, LaunchError
from gpubench.hardware.host import HostWatch
from gpubench.hardware.metrics import least_us
from gpubench.model import (
    Cache,
    CallVariant,
    Config,
    Measurement,
    Point,
    Problem,
    Scope,
    Series,
    State,
    Status,
    Timing,
    Variant,
)

PARTS = (64, 16, 4)
"""A slow launch is foreseen by launches on 1/64, 1/16, 1/4 of the rows."""

HOPELESS = 4.0
"""Launches on some rows that foresee this many times the limit are believed; if they foresee less,
more rows are tried."""

SETTLED = 0.9
"""And if fewer rows foresaw nearly the same: this part of it or more."""

SEEN_LAUNCHES = 40
"""So many launches of a point are looked at one by one, if time allows: a kernel that spoils one
launch in twenty shows twice."""

SEEING_S = 0.004
"""Time for that before the first sample. Launches too long for it are looked at between samples."""

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
        self._loaded = Loaded(backend, seed)
        self._probed: dict[tuple[Variant, Config | None, str], frozenset[str]] = {}
        """The kernels that were found exact, of each variant, tile and dtype."""

        self._notes: dict[tuple[Variant, Config | None, str], str] = {}
        """What a call was seen to do beside computing."""

        self._right: dict[Point, Measurement] = {}
        """What came of a point last, if it was right."""

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
        was probed and verified; what is timed here is verified here.
        """
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        blank = Measurement(point=point, status=Status.OK, started_utc=started)
        result = self._measure(blank, wall_limit_s, earlier)
        if result.status == Status.WRONG and self._loaded.spoiled(point):
            # By a kernel before it, perhaps: once more, on new operands.
            self._loaded.forget()
            result = self._measure(blank, wall_limit_s, earlier)
            if result.status == Status.WRONG:
                self._loaded.forget()  # by this one, and perhaps it wrote into others' too
        return result

    def _measure(
        self, result: Measurement, wall_limit_s: float | None, earlier: Measurement | None
    ) -> Measurement:
        point, host = result.point, HostWatch()
        try:
            with self.phase("operands"):
                operands = self._loaded.operands(point)
            with self.phase("compiling"):  # on a CPU; on a GPU the kernel is loaded
                kernel = self._backend.bind(point, operands)
            launch = kernel.launch and replace(kernel.launch, next_launches=(), tensor_maps=())
            result = replace(
                result, resources=kernel.resources, launch=launch, algorithm=kernel.algorithm
            )
            earlier = self._right.get(point, earlier)
            check = Check(
                self._backend,
                operands,
                lambda: self._loaded.reference(point),
                earlier,
                reads_output=point.variant.reads_output,
            )
            with self.phase("verifying"):
                if earlier is None or earlier.series is None:
                    self._watch(point)
                    if reason := self._too_slow(point, operands):
                        return replace(result, status=Status.SKIPPED, reason=reason)
                    self._probe(point)
                    self._verify(point, kernel, len(operands.sets), check)
                elif point not in self._expected_us:
                    self._take_over(point, operands, earlier, earlier.series)
            instance = point.variant, point.tile, point.problem.dtype
            notes = self._notes.get(instance, earlier.notes if earlier else "")
            with self.phase("sampling"):
                kernel = self._on_best_threads(point, kernel)
                result = self._time(result, kernel, operands, check, wall_limit_s)
            if kernel.thread_counts or point.scope == Scope.END_TO_END:
                result = replace(result, host=host.read())
            self._right[point] = replace(
                result,
                max_relative_error=check.error,
                fingerprints=check.fingerprints,
                threads=next(iter(kernel.thread_counts), None),
                resources=kernel.resources,
                algorithm=kernel.algorithm,
                notes=notes,
            )
            return self._right[point]
        except WrongError as wrong:
            self._right.pop(point, None)
            return replace(
                result, status=Status.WRONG, reason=str(wrong), max_relative_error=wrong.error
            )
        except DoesNotFitError as error:
            return replace(result, status=Status.SKIPPED, reason=str(error))
        except (CompileError, LaunchError) as error:
            return replace(result, status=Status.ERROR, reason=str(error))

    def _take_over(
        self, point: Point, operands: OperandSets, earlier: Measurement, series: Series
    ) -> None:
        """Trust another process' verdict; launch on few rows, since here it never ran.

        A library may compile or choose a kernel when it meets a size: it is called at this one.
        """
        rows = point.problem.m if point.variant.libraries else -(-point.problem.m // PARTS[0])
        self._backend.sample(self._backend.bind(point, operands, rows=rows), 1, 1)
        self._expected_us[point] = series.median_us
        if earlier.threads:
            self._threads[point] = earlier.threads

    def _too_slow(self, point: Point, operands: OperandSets) -> str | None:
        """Why a launch would pass the limit, foreseen from launches on fewer rows."""
        limit_s, m = self._timing.launch_limit_s, point.problem.m
        estimate_s = math.inf
        for part in PARTS:
            before_s = estimate_s
            rows = -(-m // part)
            kernel = self._backend.bind(point, operands, rows=rows)
            estimate_s = min(self._backend.sample(kernel, 1, 1)) * m / rows / 1e6
            if estimate_s > limit_s:  # a first launch may include loading: look again
                estimate_s = min(self._backend.sample(kernel, 1, 1)) * m / rows / 1e6
            if estimate_s <= limit_s:
                self._expected_us[point] = estimate_s * 1e6
                return None
            if estimate_s > min(HOPELESS * limit_s, SETTLED * before_s):
                break
        return f"estimated {estimate_s:.3g} s a launch, over --launch-limit {limit_s:g}"

    def _watch(self, point: Point) -> None:
        """See what a call does beside computing, once for all its sizes, before it is timed."""
        instance = point.variant, point.tile, point.problem.dtype
        is_call = isinstance(point.variant, CallVariant) and point.scope == Scope.KERNEL
        if instance in self._notes or not is_call:
            return
        problem = probe_problems(point, self._backend.device.compute_capability)[0]
        inputs, _ = make_probes(problem, self._seed)[0]
        operands = self._backend.load(problem, inputs, cold=False)
        kernel = self._backend.bind(_at_probe(point, problem), operands)
        self._backend.run(kernel)  # it may compile, or choose an algorithm
        self._notes[instance] = self._backend.watch(kernel)

    def _probe(self, point: Point) -> None:
        """Require exact results of the point's compiled kernels, once for all its sizes."""
        instance = point.variant, point.tile, point.problem.dtype
        kernels, probed = kernels_of(point, point.problem), self._probed.get(instance)
        if probed is not None and kernels <= probed:
            return
        for problem in probe_problems(point, self._backend.device.compute_capability):
            at = _at_probe(point, problem)
            for inputs, expected in make_probes(problem, self._seed):
                operands = self._backend.load(problem, inputs, cold=False)
                kernel = self._backend.bind(at, operands)
                for _ in range(2):  # the first launch may leave something behind
                    poison(operands.output, reads_output=at.variant.reads_output)
                    self._backend.run(kernel)
                    require_exact(problem, self._backend.xp, operands.output, expected)
        self._probed[instance] = kernels | (probed or frozenset())

    def _verify(self, point: Point, kernel: Kernel, sets: int, check: Check) -> None:
        """Look at the first launches: one, then more at a time, as many as there are sets."""
        check.start()
        launches, left, left_s = 1, SEEN_LAUNCHES, SEEING_S
        while launches > 0:
            started = perf_counter()
            took_us = self._backend.run(kernel, launches)
            each_s = (perf_counter() - started) / launches
            if took_us is not None:
                each_s = took_us / 1e6
                if each_s > self._timing.slow_launch_s:
                    # A right and slow launch is a sample already: on a CPU it costs seconds.
                    self._first_us[point] = took_us
            check.look()
            left -= launches
            left_s -= perf_counter() - started
            launches = min(2 * launches, sets, left, int(left_s / each_s))

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

    def _time(
        self,
        result: Measurement,
        kernel: Kernel,
        operands: OperandSets,
        check: Check,
        wall_limit_s: float | None,
    ) -> Measurement:
        """The result with its series; taken again after a pause if the device was slowed down.

        Raises WrongError if an output of what was timed is, or the time is too short to be true.
        """
        timing, point = self._timing, result.point
        if wall_limit_s is not None:
            timing = replace(
                timing,
                max_wall_s=min(timing.max_wall_s, wall_limit_s * timing.rounds),
                min_device_s=min(timing.min_device_s, wall_limit_s * timing.rounds),
            )
        check.start()
        for pause_s in (*COOLING_S, None):
            before = self._backend.health()
            if point.state == State.SUSTAINED:
                if operands.policy.flush:
                    raise DoesNotFitError("flushing the cache would let it cool: use --cache hot")
                series = self._backend.sustain(kernel, timing.heat_s, timing.sustained_s)
            else:
                series = collect(
                    self._seen_samples(kernel, operands, check),
                    timing,
                    kernel.max_launches,
                    self._expected_us[point],
                    self._first_us.pop(point, None),
                )
            after = self._backend.health()
            check.look()
            slowed = set(SLOWDOWNS) & {*before.throttle, *after.throttle}
            if not slowed or pause_s is None:
                break
            self._sleep(pause_s)
        least = least_us(point.problem, self._backend.device)
        if not series.median_us > least:
            raise WrongError(
                f"{series.median_us:.3g} µs a launch, and the device cannot take less than "
                f"{least:.3g}: not all was computed, or the time is wrong"
            )
        return replace(result, series=series, before=before, after=after)

    def _seen_samples(self, kernel: Kernel, operands: OperandSets, check: Check) -> Sample:
        """Samples of the kernel; the first ones of a single launch are looked at between them."""
        left, sets = SEEN_LAUNCHES, len(operands.sets)

        def sample(launches: int, count: int) -> list[float]:
            nonlocal left
            times: list[float] = []
            while len(times) < count:
                several = count - len(times)
                if seeing := launches == 1 and left > 0:
                    several = min(several, sets)
                times += self._backend.sample(kernel, launches, several)
                if seeing and len(operands.rotation.used) == sets:
                    check.look()
                    left -= sets
            return times

        return sample

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a phase."""
        started = perf_counter()
        try:
            yield
        finally:
            self.spent_s[name] += perf_counter() - started


def _at_probe(point: Point, problem: Problem) -> Point:
    """The point at the size of a probe; a choice of algorithm is one for a size, and left out."""
    variant = point.variant
    if isinstance(variant, CallVariant):
        variant = replace(variant, tune=None)
    return replace(point, problem=problem, variant=variant, cache=Cache.HOT, scope=Scope.KERNEL)
