"""Measures a point once, and verifies the outputs of the first launches and of the samples."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

from gpubench.backends import Backend, Kernel
from gpubench.backends.functions import answers
from gpubench.backends.rotation import OperandSets
from gpubench.engine.judge.probe_size import fewer_rows
from gpubench.engine.judge.verdict import WrongError, as_judged, require, why_too_short
from gpubench.engine.judge.verify import Check
from gpubench.engine.measure.examiner import Examiner
from gpubench.engine.measure.phases import Phases
from gpubench.engine.measure.sampling import LONG, Sample, best_threads, collect
from gpubench.engine.measure.trials import Instance, Trials, instance_of
from gpubench.engine.operands.cache import OperandCache
from gpubench.errors import CompileError, DoesNotFitError, LaunchError
from gpubench.hardware.metrics import least_us
from gpubench.model import (
    CallVariant,
    Fill,
    Measurement,
    Point,
    Scope,
    Series,
    State,
    Status,
    Timer,
    Timing,
)
from gpubench.plan.scrutiny import scrutiny_of
from gpubench.text import digits

FRACTIONS = (64, 16, 4)
"""Divisors of the number of rows. The time of a slow launch is predicted from launches on 1/64,
1/16 and 1/4 of the rows."""

HOPELESS = 4.0
"""Ratio of a predicted time to the limit, above which the prediction is accepted. Below this ratio,
a launch on more rows is tried."""

SETTLED = 0.9  # minimum ratio to the previous prediction at which a prediction is accepted

WATCHED_LAUNCHES = 40
"""Number of launches of a point whose outputs are compared one by one, if time allows. A kernel
that is wrong in one of twenty launches is wrong about twice in these launches."""

WATCHING_S = 0.004
"""Time limit, in seconds, for comparing outputs one by one before the first sample. Outputs of
slower launches are compared between samples."""

WATCHING_OUTSIDE_S = 0.25
"""Time limit, in seconds, for comparing outputs one by one if another process takes the samples.
The other process compares only some rows of each output."""

SLOWDOWNS = ("thermal slowdown", "hardware slowdown")
"""States of a GPU in which a time reveals nothing about the kernel. A power cap is normal, and is
only recorded."""

COOLING_S = (1.0, 4.0, 10.0)
"""Pauses, in seconds, before a point is timed again after a slowdown. The last measurement is kept,
and its row names the slowdown."""


@dataclass
class PointState:
    """State of a point that a process keeps from visit to visit."""

    right: Measurement | None = None  # the last measurement, if its result was right
    expected_us: float = 0.0  # the expected time of a launch; 0: unknown
    first_us: float | None = None  # the time of a first long launch, which becomes a sample
    threads: int = 0  # the best number of CPU threads; 0: not chosen


class Visits:
    """Measures points of a job on a backend. Verdicts are kept from visit to visit."""

    def __init__(
        self,
        backend: Backend,
        operand_cache: OperandCache,
        timing: Timing,
        phase: Phases,
        sleep: Callable[[float], None],
        on_ready: Callable[[], None],
    ) -> None:
        self._backend, self._operand_cache = backend, operand_cache
        self._timing, self._phase, self._sleep = timing, phase, sleep
        self._on_ready = on_ready
        self.examiner = Examiner(backend, operand_cache, self._on_best_threads)
        self._trials = Trials(backend, operand_cache, self.examiner)
        self._states: defaultdict[Point, PointState] = defaultdict(PointState)
        self._launched: set[Instance] = set()
        """The instances that `_take_over` has handled in this process."""

    def visit(
        self, blank: Measurement, wall_limit_s: float | None, earlier: Measurement | None
    ) -> Measurement:
        """Measure a point once, and return the measurement, also if the point fails.

        The measurement's status and reason describe a failure. `earlier` is the point's measurement
        in another process.
        """
        state = self._states[blank.point]
        try:
            return self._visit(blank, state, wall_limit_s, state.right or earlier)
        except WrongError as wrong:
            state.right = None
            return as_judged(blank, wrong)
        except DoesNotFitError as error:
            return replace(blank, status=Status.SKIPPED, reason=str(error))
        except (CompileError, LaunchError) as error:
            return replace(blank, status=Status.ERROR, reason=str(error))

    def _visit(
        self,
        blank: Measurement,
        state: PointState,
        wall_limit_s: float | None,
        earlier: Measurement | None,
    ) -> Measurement:
        point, is_outside = blank.point, blank.point.timer == Timer.OUTSIDE
        compiled_before_s = self._phase.spent_s["compiling"]
        operands, kernel = self._loaded(point)
        result = _described(blank, kernel)
        had_these_operands = earlier is not None and earlier.seed == blank.seed
        check = self.check(point, operands, earlier if had_these_operands else None)
        is_first = earlier is None or earlier.series is None
        if is_first:
            if reason := self._too_slow(point, operands, kernel):
                return replace(result, status=Status.SKIPPED, reason=reason)
            if _compiles_when_called(point):
                with self._phase("compiling"):
                    kernel.run()
                first_call_s = self._phase.spent_s["compiling"] - compiled_before_s
                result = replace(result, first_call_s=first_call_s)
        elif earlier and earlier.series and not state.expected_us:
            with self._phase("compiling"):
                self._take_over(point, operands, earlier, earlier.series)
        self._on_ready()
        checks = self._verify_first(point, kernel, check) if is_first else [check]
        with self._phase("sampling"):
            kernel = self._on_best_threads(point, kernel)
            if is_outside:  # the parent derives the length of its batches from this time
                times_us = tuple(kernel.sample(1, 1))
                series = Series(times_us=times_us, launches_per_sample=1, stop_reason="estimated")
                result = replace(result, series=series)
            else:
                result = self._time(result, kernel, check, wall_limit_s)
        with self._phase("verifying"):
            for each in checks:
                each.settle()
            if point.scope == Scope.KERNEL and not is_outside:
                self._trials.require_independent(point, operands, kernel, result, is_first=is_first)
        resources, algorithm = answers(kernel)
        state.right = replace(
            result,
            max_relative_error=check.errors.judged,
            largest_error=check.errors.largest,
            rms_error=check.errors.rms,
            fingerprints=check.fingerprints,
            threads=next(iter(kernel.thread_counts), None),
            resources=resources,
            algorithm=algorithm,
            kernels_run=earlier.kernels_run if earlier else kernel.kernels_run(),
            notes=self._trials.notes.get(instance_of(point), earlier.notes if earlier else ""),
        )
        return state.right

    def right_kernel(self, point: Point, operands: OperandSets) -> Kernel:
        """Return the point's kernel after one launch. Raises WrongError for a wrong result."""
        kernel, check = self._backend.bind(point, operands), self.check(point, operands)
        check.start()
        kernel.run()
        check.look()
        check.settle()
        return kernel

    def check(
        self, point: Point, operands: OperandSets, earlier: Measurement | None = None
    ) -> Check:
        """Return the object that compares a point's outputs with the reference."""
        reference = partial(self._operand_cache.reference, point)
        return Check(self._backend.xp, point, operands, reference, earlier)

    def _loaded(self, point: Point) -> tuple[OperandSets, Kernel]:
        with self._phase("operands"):
            operands = self._operand_cache.operands(point)
        with self._phase("compiling"):  # on a GPU, the compiled kernel is only loaded
            kernel = self._backend.bind(point, operands)
            self._backend.reset_caches()  # an earlier kernel may have pinned its operands
        return operands, kernel

    def _take_over(
        self, point: Point, operands: OperandSets, earlier: Measurement, series: Series
    ) -> None:
        """Accept the verdict of another process, and launch on few rows to load the kernel here.

        A function that compiles or chooses a kernel for each size is called at the full size. A
        compiled kernel needs no such launch if this process has launched it at another size. The
        launch is also omitted if launches are short: a first sample that includes loading is
        discarded and taken again.
        """
        state = self._states[point]
        state.expected_us = series.median_us
        is_new = instance_of(point) not in self._launched
        if isinstance(point.variant, CallVariant) or (is_new and self._is_long(point)):
            m = point.problem.m
            whole = _compiles_when_called(point)
            rows = m if whole else fewer_rows(point, -(-m // FRACTIONS[0]))
            self._backend.bind(point, operands, rows=rows).run()
        self._launched.add(instance_of(point))
        if earlier.threads:
            state.threads = earlier.threads

    def _too_slow(self, point: Point, operands: OperandSets, kernel: Kernel) -> str | None:
        """Return a reason if launches on fewer rows show that a full launch exceeds the limit."""
        with self._phase("compiling"):  # a function may compile when it is first called
            self._trials.watch(point, kernel.routine.note)
        limit_s, m = self._timing.launch_limit_s, point.problem.m
        estimate_s = math.inf
        with self._phase("sampling"):
            for fraction in FRACTIONS:
                before_s = estimate_s
                rows = fewer_rows(point, -(-m // fraction))
                fewer = self._backend.bind(point, operands, rows=rows)
                estimate_s = min(fewer.sample(1, 1)) * m / rows / 1e6
                if estimate_s > limit_s:  # a first launch may include loading, so launch again
                    estimate_s = min(fewer.sample(1, 1)) * m / rows / 1e6
                if estimate_s <= limit_s:
                    self._states[point].expected_us = estimate_s * 1e6
                    return None
                if estimate_s > min(HOPELESS * limit_s, SETTLED * before_s):
                    break
        return f"estimated {digits(estimate_s)} s a launch, over --launch-limit {limit_s:g}"

    def _verify_first(self, point: Point, kernel: Kernel, check: Check) -> list[Check]:
        """Verify a point that no process has verified.

        Return the checks that `settle` must complete after the timed launches. Raises WrongError.
        """
        checks = [check]
        with self._phase("verifying"):
            self._trials.probe(point)
            if not point.operands.reveals_errors:
                # Zeros, ones or short mantissas can give right results even if a product is missing
                uniform = replace(point, operands=Fill.UNIFORM)
                operands = self._operand_cache.operands(uniform)
                on_uniform = self._backend.bind(uniform, operands)
                checks.append(self.check(uniform, operands))
                self._compare_first(uniform, on_uniform, checks[-1])
                self._states[uniform].first_us = None  # the sweep may also measure this point
            self._compare_first(point, kernel, check)
        return checks

    def _compare_first(self, point: Point, kernel: Kernel, check: Check) -> None:
        """Compare the output of the first launch, and then the outputs of batches of launches.

        A batch has at most one launch for each set of operands. If launches are long, the first
        launch is timed, so that `collect` needs one launch less.
        """
        check.start()
        launches, left = 1, WATCHED_LAUNCHES
        left_s = WATCHING_OUTSIDE_S if point.timer == Timer.OUTSIDE else WATCHING_S
        while launches > 0:
            started = perf_counter()
            if left == WATCHED_LAUNCHES and self._is_long(point):
                with self._phase("sampling"):
                    (self._states[point].first_us,) = kernel.sample(1, 1)
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
        return self._states[point].expected_us > LONG * self._timing.sample_us

    def _on_best_threads(self, point: Point, kernel: Kernel) -> Kernel:
        """Return the kernel on its best number of CPU threads, as the first round found it."""
        counts, state = kernel.thread_counts, self._states[point]
        if len(counts) <= 1:
            return kernel
        if not state.threads:
            slow_us = 1e6 * self._timing.slow_launch_s
            state.threads = best_threads(
                lambda count: kernel.on_threads(count).sample(1, 1)[0], counts, slow_us
            )
        if state.threads != counts[0]:
            state.first_us = None
        return kernel.on_threads(state.threads)

    def _time(
        self, result: Measurement, kernel: Kernel, check: Check, wall_limit_s: float | None
    ) -> Measurement:
        """Take the samples of a point, and return the result with these samples.

        After a slowdown of the GPU, wait, and take the samples again. Raises WrongError if a timed
        output is wrong, or if the time is impossibly short.
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
            series = self._series(point, kernel, check, timing)
            after = self._backend.gauge.health()
            with self._phase("verifying"):
                check.look()
            slowed = set(SLOWDOWNS) & {*before.throttle, *after.throttle}
            if not slowed or pause_s is None:
                break
            self._sleep(pause_s)
        require(why_too_short(series.median_us, least_us(point.problem, self._backend.device)))
        return replace(result, series=series, before=before, after=after)

    def _series(self, point: Point, kernel: Kernel, check: Check, timing: Timing) -> Series:
        if point.state == State.SUSTAINED:
            if check.operands.policy.flush:
                raise DoesNotFitError("flushing the cache would let the GPU cool: use --cache hot")
            return kernel.sustain(timing.heat_s, timing.sustained_s)
        state = self._states[point]
        first_us, state.first_us = state.first_us, None
        return collect(
            self._checked_samples(kernel, check),
            timing,
            kernel.max_launches,
            state.expected_us,
            first_us,
            min_launches=kernel.min_launches,
        )

    def _checked_samples(self, kernel: Kernel, check: Check) -> Sample:
        """Return a function that takes samples, and that checks the outputs of the first samples.

        Only the outputs of samples with a single launch are checked.
        """
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


def _described(blank: Measurement, kernel: Kernel) -> Measurement:
    """Return the measurement with the facts about the kernel that are known before a launch."""
    routine, (resources, algorithm) = kernel.routine, answers(kernel)
    launch = routine.launch and replace(routine.launch.main, next_launches=(), tensor_maps=())
    return replace(
        blank, resources=resources, algorithm=algorithm, launch=launch, code_hash=routine.code_hash
    )


def _compiles_when_called(point: Point) -> bool:
    """Return whether the point's function may compile, or choose a kernel, at each new size."""
    variant = point.variant
    return scrutiny_of(variant).has_own_process or (
        isinstance(variant, CallVariant) and bool(variant.libraries)
    )
