"""A point becomes a measurement: load, estimate, verify, time, and verify what was timed.

A `Runner` measures in its own process. A `Worker` has one in a child process.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter, sleep

from gpubench.backends import Backend, Kernel
from gpubench.backends.functions import answers
from gpubench.backends.rotation import OperandSets
from gpubench.engine.judge.probe import (
    fewer_rows,
)
from gpubench.engine.judge.verdict import WrongError, as_judged, require, why_too_short
from gpubench.engine.judge.verify import (
    Check,
    compare_small,
)
from gpubench.engine.measure.examiner import Examiner
from gpubench.engine.measure.pairs import paired
from gpubench.engine.measure.sampling import LONG, Sample, best_threads, collect
from gpubench.engine.measure.trials import Instance, Trials, instance_of
from gpubench.engine.operands.cache import OperandCache
from gpubench.engine.operands.make import Reference
from gpubench.errors import CompileError, DoesNotFitError, LaunchError, first_line
from gpubench.hardware.metrics import least_us
from gpubench.model import (
    CallVariant,
    Fill,
    Measurement,
    PairedTimes,
    Parts,
    Point,
    Scope,
    Series,
    State,
    Status,
    Timer,
    Timing,
)
from gpubench.plan.registry import is_ours
from gpubench.text import digits

FRACTIONS = (64, 16, 4)
"""A slow launch is predicted from launches on 1/64, 1/16 and 1/4 of the rows."""

HOPELESS = 4.0
"""A prediction of more than this many times the limit is accepted. Below it, a launch on more rows
is tried."""

SETTLED = 0.9  # A prediction of at least this fraction of the previous prediction is accepted too

WATCHED_LAUNCHES = 40
"""Number of launches of a point whose outputs are compared one by one, if time allows. A kernel
that spoils one launch in twenty then shows twice."""

WATCHING_S = 0.004
"""Time for these comparisons before the first sample. Outputs of slower launches are compared
between samples."""

SLOWDOWNS = ("thermal slowdown", "hardware slowdown")
"""States in which a time reveals nothing about the kernel. A power cap is normal, and only
marked."""

COOLING_S = (1.0, 4.0, 10.0)
"""Pauses before a point is timed again after a slowdown. The last time is kept and marked."""


class Runner:
    """Measures points on a backend, in this process. Operands and verdicts are kept between rounds.

    A kernel that crashes ends the process.
    """

    def __init__(
        self,
        backend: Backend,
        timing: Timing | None = None,
        seed: int = 0,
        sleep: Callable[[float], None] = sleep,
    ) -> None:
        self._backend, self._sleep = backend, sleep
        self.device, self.notices = backend.device, backend.notices
        self.begin(timing or Timing(), seed)

    def begin(self, timing: Timing, seed: int, _verified: Sequence[Measurement] = ()) -> None:
        """Forget the previous job. The backend keeps what it compiled."""
        self._timing = timing
        self._seed = seed
        self._operand_cache = OperandCache(self._backend, seed)
        self.examiner = Examiner(self._backend, self._operand_cache, self._on_best_threads)
        self._trials = Trials(self._backend, self._operand_cache, self.examiner)
        self._right: dict[Point, Measurement] = {}
        """The last measurement of each point, if its result was right."""

        self._expected_us: dict[Point, float] = {}
        self._first_us: dict[Point, float] = {}
        self._threads: dict[Point, int] = {}
        self._launched: set[Instance] = set()
        """The instances that a later round of the job has launched in this process."""

        self.spent_s: defaultdict[str, float] = defaultdict(float)  # wall time of this job by phase

    @property
    def usable(self) -> bool:
        """Whether the device still works."""
        return self._backend.usable()

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Compile what the points need before they are measured, and what comparisons need."""
        with self._phase("compiling"), ThreadPoolExecutor(1) as compiler:
            compiled = compiler.submit(self._backend.compile, points, on_built)
            with suppress(DoesNotFitError, MemoryError):  # each point reports it when measured
                compare_small(self._operand_cache, self._backend.xp, points)
            compiled.result()

    def warm_up(self) -> None:
        """Bring the device to the clock that it keeps under load."""
        with self._phase("warming up"):
            self._backend.warm_up()

    def ceilings(self, dtypes: Sequence[str], kept: bool = False) -> dict[str, float]:
        """Measure the device's highest rates."""
        with self._phase("warming up"):
            return self._backend.gauge.ceilings(dtypes, kept=kept)

    def parts(self) -> Parts:
        """Measure fixed work on each part of the device."""
        gauge = self._backend.gauge
        with self._phase("sampling"):
            times_us = gauge.parts()
        return Parts(times_us=times_us, health=gauge.health(), configuration=gauge.configuration())

    def empty_launch_us(self) -> dict[str, float]:
        """Time a launch of an empty kernel by each clock of the device."""
        with self._phase("sampling"):
            return self._backend.gauge.empty_launch_us()

    def next_round(self) -> None:
        """Do nothing: there is only this process."""

    def measure(
        self,
        point: Point,
        wall_limit_s: float | None = None,
        earlier: Measurement | None = None,
        seed: int | None = None,
    ) -> Measurement:
        """Measure a point once. A failure becomes the measurement's status and reason.

        `wall_limit_s` is the wall time that a budget leaves for the point. Sampling stops there,
        but not before it has the minimum number of samples. `earlier` is the point's measurement in
        another process, where it was probed and verified. What is timed here is verified here.
        `seed` is the seed of the operands and probes, if it is not the job's.
        """
        self._operand_cache.use_seed(seed)
        self.examiner.forget()
        started = datetime.now(UTC).isoformat(timespec="microseconds")
        blank = Measurement(point=point, status=Status.OK, started_utc=started, seed=seed)
        result = self._measure(blank, wall_limit_s, earlier)
        if result.status == Status.WRONG and self._operand_cache.spoiled(point):
            # An earlier kernel may have overwritten the operands: try again on new operands.
            self._operand_cache.forget()
            result = self._measure(blank, wall_limit_s, earlier)
            if result.status == Status.WRONG:
                self._operand_cache.forget()  # this kernel may have overwritten other operands, too
        return result

    def row_digests(
        self, point: Point, rows: int, seed: int, launches: int
    ) -> list[tuple[str, str]]:
        """Return digests of results on a number of rows (`Examiner.row_digests`)."""
        return self.examiner.row_digests(point, rows, seed, launches)

    def measure_pairs(self, point: Point, library: Point) -> PairedTimes | str:
        """Measure a kernel and a library in turns at the power limit (`engine.pairs`).

        Both have the same problem. Returns the reason if that fails.
        """
        self._operand_cache.use_seed(None)
        try:
            operands = self._operand_cache.operands(point)
            if operands.policy.flush:
                return "flushing the cache would let the device cool: use --cache hot"
            kernel, other = (self._checked(each, operands) for each in (point, library))
            with self._phase("sampling"):
                return paired(kernel, other)
        except (WrongError, CompileError, LaunchError, DoesNotFitError) as error:
            return first_line(error)

    def _checked(self, point: Point, operands: OperandSets) -> Kernel:
        """Return the point's kernel after a launch whose result was right. Raises WrongError."""
        kernel, check = self._backend.bind(point, operands), self._check(point, operands)
        check.start()
        kernel.run()
        check.look()
        return kernel

    def _check(
        self,
        point: Point,
        operands: OperandSets,
        earlier: Measurement | None = None,
        *,
        later: bool = False,
    ) -> Check:
        def reference(content: int = 0) -> Reference:
            return self._operand_cache.reference(point, content)

        return Check(self._backend.xp, point, operands, reference, earlier, later=later)

    def _measure(
        self, result: Measurement, wall_limit_s: float | None, earlier: Measurement | None
    ) -> Measurement:
        point = result.point
        try:
            with self._phase("operands"):
                operands = self._operand_cache.operands(point)
            with self._phase("compiling"):  # on a CPU; on a GPU the kernel is loaded
                kernel = self._backend.bind(point, operands)
                self._backend.reset_caches()  # an earlier kernel may have pinned its operands
            routine, (resources, algorithm) = kernel.routine, answers(kernel)
            result = replace(
                result,
                resources=resources,
                algorithm=algorithm,
                launch=routine.launch
                and replace(routine.launch.main, next_launches=(), tensor_maps=()),
                code_hash=routine.code_hash,
            )
            earlier = self._right.get(point, earlier)
            on_same_operands = earlier if earlier and earlier.seed == result.seed else None
            is_users = not is_ours(point.variant)
            check = self._check(point, operands, on_same_operands, later=is_users)
            if is_first := earlier is None or earlier.series is None:
                with self._phase("compiling"):  # a function may compile when it is first called
                    self._trials.watch(point, kernel.routine.note)
                with self._phase("sampling"):
                    if reason := self._too_slow(point, operands):
                        return replace(result, status=Status.SKIPPED, reason=reason)
                with self._phase("verifying"):
                    self._trials.probe(point)
                    if not point.operands.reveals_errors:
                        self._verify_on_uniform(point)
                    self._verify(point, kernel, check)
            elif earlier and earlier.series and point not in self._expected_us:
                with self._phase("compiling"):
                    self._take_over(point, operands, earlier, earlier.series)
            instance = instance_of(point)
            notes = self._trials.notes.get(instance, earlier.notes if earlier else "")
            with self._phase("sampling"):
                kernel = self._on_best_threads(point, kernel)
                if is_outside := point.timer == Timer.OUTSIDE:
                    result = replace(result, series=self._estimated(kernel))
                else:
                    result = self._time(result, kernel, check, wall_limit_s)
            with self._phase("verifying"):
                check.settle()
                if point.scope == Scope.KERNEL and not is_outside:
                    self._trials.require_independent(
                        point, operands, kernel, result, is_first=is_first
                    )
            resources, algorithm = answers(kernel)
            self._right[point] = replace(
                result,
                max_relative_error=check.errors.judged,
                largest_error=check.errors.largest,
                rms_error=check.errors.rms,
                fingerprints=check.fingerprints,
                threads=next(iter(kernel.thread_counts), None),
                resources=resources,
                algorithm=algorithm,
                kernels_run=earlier.kernels_run if earlier else kernel.kernels_run(),
                notes=notes,
            )
            return self._right[point]
        except WrongError as wrong:
            self._right.pop(point, None)
            return as_judged(result, wrong)
        except DoesNotFitError as error:
            return replace(result, status=Status.SKIPPED, reason=str(error))
        except (CompileError, LaunchError) as error:
            return replace(result, status=Status.ERROR, reason=str(error))

    def _take_over(
        self, point: Point, operands: OperandSets, earlier: Measurement, series: Series
    ) -> None:
        """Accept the verdict of another process, and launch on few rows to load the kernel here.

        A library may compile or choose a kernel for each size, so it is called at the full size. A
        compiled kernel needs no such launch if another size had it, or if launches are short: a
        first sample that includes loading is void, and is taken again.
        """
        self._expected_us[point] = series.median_us
        is_new = instance_of(point) not in self._launched
        if isinstance(point.variant, CallVariant) or (is_new and self._is_long(point)):
            m = point.problem.m
            rows = m if point.variant.libraries else fewer_rows(point, -(-m // FRACTIONS[0]))
            self._backend.bind(point, operands, rows=rows).run()
        self._launched.add(instance_of(point))
        if earlier.threads:
            self._threads[point] = earlier.threads

    def _too_slow(self, point: Point, operands: OperandSets) -> str | None:
        """Return why a launch would exceed the limit, predicted from launches on fewer rows."""
        limit_s, m = self._timing.launch_limit_s, point.problem.m
        estimate_s = math.inf
        for fraction in FRACTIONS:
            before_s = estimate_s
            rows = fewer_rows(point, -(-m // fraction))
            kernel = self._backend.bind(point, operands, rows=rows)
            estimate_s = min(kernel.sample(1, 1)) * m / rows / 1e6
            if estimate_s > limit_s:  # a first launch may include loading, so launch again
                estimate_s = min(kernel.sample(1, 1)) * m / rows / 1e6
            if estimate_s <= limit_s:
                self._expected_us[point] = estimate_s * 1e6
                return None
            if estimate_s > min(HOPELESS * limit_s, SETTLED * before_s):
                break
        return f"estimated {digits(estimate_s)} s a launch, over --launch-limit {limit_s:g}"

    def _verify_on_uniform(self, point: Point) -> None:
        """Verify the point's kernel and problem on uniform operands.

        Results of zeros, ones or short mantissas can be right although a product was lost.
        """
        uniform = replace(point, operands=Fill.UNIFORM)
        operands = self._operand_cache.operands(uniform)
        kernel, check = self._backend.bind(uniform, operands), self._check(uniform, operands)
        self._verify(uniform, kernel, check)
        self._first_us.pop(uniform, None)  # a point of the sweep may have these operands

    def _verify(self, point: Point, kernel: Kernel, check: Check) -> None:
        """Compare the outputs of the first launches: one, then batches of at most one per set.

        If launches are long, the first is timed, so that `collect` needs one launch less.
        """
        check.start()
        launches, left, left_s = 1, WATCHED_LAUNCHES, WATCHING_S
        while launches > 0:
            started = perf_counter()
            if left == WATCHED_LAUNCHES and self._is_long(point):
                with self._phase("sampling"):
                    (self._first_us[point],) = kernel.sample(1, 1)
            else:
                kernel.run(launches)
            each_s = (perf_counter() - started) / launches
            check.look()
            left -= launches
            left_s -= perf_counter() - started
            sets = len(check.operands.sets)
            launches = min(2 * launches, sets, left, int(left_s / each_s))

    def _is_long(self, point: Point) -> bool:
        """Return whether a launch is expected to be so long that samples need no batches."""
        return self._expected_us.get(point, 0.0) > LONG * self._timing.sample_us

    def _on_best_threads(self, point: Point, kernel: Kernel) -> Kernel:
        """Return the kernel on its best number of CPU threads, which the first round chooses."""
        counts = kernel.thread_counts
        if len(counts) <= 1:
            return kernel
        if point not in self._threads:
            slow_us = 1e6 * self._timing.slow_launch_s
            self._threads[point] = best_threads(
                lambda count: kernel.on_threads(count).sample(1, 1)[0], counts, slow_us
            )
        if self._threads[point] != counts[0]:
            self._first_us.pop(point, None)
        return kernel.on_threads(self._threads[point])

    def _time(
        self, result: Measurement, kernel: Kernel, check: Check, wall_limit_s: float | None
    ) -> Measurement:
        """Return the result with its series. After a slowdown, wait and time again.

        Raises WrongError if a timed output is wrong, or if the time is impossibly short.
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
            before = self._backend.gauge.health()
            if point.state == State.SUSTAINED:
                if check.operands.policy.flush:
                    raise DoesNotFitError("flushing the cache would let it cool: use --cache hot")
                series = kernel.sustain(timing.heat_s, timing.sustained_s)
            else:
                series = collect(
                    self._checked_samples(kernel, check),
                    timing,
                    kernel.max_launches,
                    self._expected_us[point],
                    self._first_us.pop(point, None),
                    min_launches=kernel.min_launches,
                )
            after = self._backend.gauge.health()
            with self._phase("verifying"):
                check.look()
            slowed = set(SLOWDOWNS) & {*before.throttle, *after.throttle}
            if not slowed or pause_s is None:
                break
            self._sleep(pause_s)
        require(why_too_short(series.median_us, least_us(point.problem, self._backend.device)))
        return replace(result, series=series, before=before, after=after)

    def _estimated(self, kernel: Kernel) -> Series:
        """Return the time of a launch, from which the parent derives the length of its batches."""
        return Series(
            times_us=tuple(kernel.sample(1, 1)), launches_per_sample=1, stop_reason="estimated"
        )

    def _checked_samples(self, kernel: Kernel, check: Check) -> Sample:
        """Return a function that samples the kernel, and checks its first single launches."""
        left, sets = WATCHED_LAUNCHES, len(check.operands.sets)

        def sample(launches: int, count: int) -> list[float]:
            nonlocal left
            times: list[float] = []
            while len(times) < count:
                batch = count - len(times)
                if checks := launches == 1 and left > 0:
                    batch = min(batch, sets)
                times += kernel.sample(launches, batch)
                if checks and len(check.operands.rotation.used) == sets:
                    with self._phase("verifying"):
                        check.look()
                    left -= sets
            return times

        return sample

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Add the wall time of the block to a phase, without that of the phases inside it."""
        before_s, started = sum(self.spent_s.values()), perf_counter()
        try:
            yield
        finally:
            inside_s = sum(self.spent_s.values()) - before_s
            self.spent_s[name] += perf_counter() - started - inside_s
