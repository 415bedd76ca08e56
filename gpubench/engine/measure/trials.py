"""Launches kernels in addition to the timed launches, to judge their results in this process."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from secrets import choice, randbits
from typing import Any

from numpy.typing import NDArray

from gpubench.backends import Backend, Kernel
from gpubench.backends.rotation import OperandSets, operand_factors, result_factor
from gpubench.engine.judge.independence import Case, copies_of_first_set, require_independent
from gpubench.engine.judge.probe import (
    all_probes,
    inputs_of,
    make_probes,
    require_exact,
    trial_inputs,
)
from gpubench.engine.judge.probe_size import at_probe, probe_problem
from gpubench.engine.judge.verdict import WrongError, missing
from gpubench.engine.judge.verify import (
    STALE,
    is_unchanged,
    is_unwritten,
    never_written,
    poison,
    require_right,
    right_on,
)
from gpubench.engine.measure.examiner import Examiner
from gpubench.engine.operands.cache import OperandCache
from gpubench.engine.operands.make import SEED_BITS, make_inputs, make_new_values, random_fill
from gpubench.model import (
    CallVariant,
    Config,
    Launches,
    Measurement,
    Point,
    Problem,
    Scope,
    Timer,
    Variant,
)
from gpubench.plan.scrutiny import scrutiny_of

LONG_LAUNCH_US = 2000.0
"""Time of a launch, in microseconds, above which each case of `judge.independence` has few
launches."""

Instance = tuple[Variant, Config | None, str, tuple[str, ...]]
"""Key of code that is compiled once for all sizes. The key consists of the variant, the tile, the
dtype and the names of the column-major matrices."""


class Trials:
    """Judges kernels in additional launches. Probes are judged only once at each size."""

    def __init__(self, backend: Backend, operand_cache: OperandCache, examiner: Examiner) -> None:
        self._backend, self._operand_cache, self._examiner = backend, operand_cache, examiner
        self._exact: set[tuple[Instance, Problem]] = set()
        """The instances whose results were exact, with the sizes of the probes."""

        self.notes: dict[Instance, str] = {}  # what each call does in addition to computing
        self._writes: set[Instance] = set()  # calls that wrote a result when they were first called

    def watch(self, point: Point, note: str) -> None:
        """Record, before the first timing, what a call does in addition to computing.

        `note` is a note on how the kernel was compiled.
        """
        instance = instance_of(point)
        is_call = isinstance(point.variant, CallVariant) and point.scope == Scope.KERNEL
        if note and not is_call:
            self.notes[instance] = note
        if instance in self.notes or not is_call:
            return
        problem = probe_problem(point, self._backend.device.compute_capability)
        inputs = trial_inputs(problem, self._operand_cache.seed)
        operands = self._backend.load(problem, inputs, cold=False)
        kernel = self._backend.bind(at_probe(point, problem), operands)
        poison(operands.output, reads_output=point.variant.reads_output)
        kernel.run()  # the call may compile, or choose an algorithm
        if not is_unwritten(self._backend.xp, operands.output):
            self._writes.add(instance)
        self.notes[instance] = kernel.watch()

    def probe(self, point: Point) -> None:
        """Raise WrongError unless the kernel's results on the operands of probes are right.

        Each instance is tried only once with probes of the same size. If the operation is not a
        product, random operands are used, too.
        """
        problem = probe_problem(point, self._backend.device.compute_capability)
        instance = instance_of(point)
        if (instance, problem) in self._exact:
            return
        for inputs, judge in self._trials(point, problem):
            # Two launches, because the first may leave data for the second.
            for output in self._examiner.outputs(point, problem, inputs, 2):
                self._require(judge, point, output)
        self._exact.add((instance, problem))

    def _require(self, judge: Callable[[Any], None], point: Point, output: Any) -> None:
        """Raise the WrongError of `judge`, with a clearer reason if the kernel wrote nothing."""
        xp = self._backend.xp
        try:
            judge(output)
        except WrongError:
            if not is_unwritten(xp, output):
                raise
            is_stale = instance_of(point) in self._writes and is_unchanged(xp, output)
            raise missing(STALE if is_stale else never_written(xp, output, point.variant)) from None

    def _trials(
        self, point: Point, problem: Problem
    ) -> Iterator[tuple[Sequence[Any], Callable[[Any], None]]]:
        """Yield pairs of operands and a function that raises WrongError unless a result is right.

        An operation that is not just a product gets random operands. An operation that contains a
        product also gets the operands of exact probes.
        """
        xp, seed = self._backend.xp, self._operand_cache.seed
        if not problem.operation.is_product:
            inputs = make_inputs(problem, seed, content=1)
            yield inputs, right_on(xp, problem, inputs)
        probes = all_probes if scrutiny_of(point.variant).probes_sums else make_probes
        for probe in probes(problem, seed) if problem.operation.has_product else ():
            yield inputs_of(probe), partial(require_exact, probe, xp)

    def require_independent(
        self,
        point: Point,
        operands: OperandSets,
        timed: Kernel,
        result: Measurement,
        *,
        is_first: bool,
    ) -> None:
        """Raise WrongError if a launch depends on what the output held, or on earlier operands.

        Our own kernels are known to be independent, so only a user's kernel is launched for this
        test. The first round of such a kernel examines all cases. A later round examines one random
        case.
        """
        problem, time_us = point.problem, result.series.median_us if result.series else math.inf
        is_long = time_us > LONG_LAUNCH_US
        if not scrutiny_of(point.variant).tries_other_operands:
            return
        if 2 * problem.bytes > self._backend.bytes_free():
            return
        own_set = copies_of_first_set(operands)
        kernel = self._backend.bind(at_probe(point, problem), own_set)
        for count in timed.thread_counts[:1]:
            kernel = kernel.on_threads(count)
        kernel.run()  # the call may compile
        require_independent(
            own_set,
            lambda: kernel.sample(1, 1)[0],
            self._backend.xp,
            new_inputs=partial(_new_inputs, point),
            is_long=is_long,
            cases=tuple(Case) if is_first else (choice((Case.FILLED, Case.CHANGED)),),
            by_events=point.timer == Timer.EVENTS and point.launches != Launches.WAITED,
            reads_output=point.variant.reads_output,
        )
        if is_first and problem.operation.is_linear:
            self._require_scaled(point, launches=1 if is_long else 2)

    def _require_scaled(self, point: Point, *, launches: int) -> None:
        """Raise WrongError unless launches on operands of another sign and scale are right.

        Where the cache is hot, the timed launches all have the same operands. Where the cache is
        cold, consecutive launches have different operands. The launches of this test first have new
        operands, and then repeat the same operands.
        """
        problem, timed = point.problem, self._operand_cache.operands(point)
        pairs = zip(timed.host_inputs, operand_factors(problem, 1), strict=True)
        scaled = tuple(host * host.dtype.type(factor) for host, factor in pairs)
        for output in self._examiner.outputs(point, problem, scaled, launches):
            require_right(
                self._backend.xp,
                timed,
                output,
                self._operand_cache.reference(point),
                result_factor(problem, 1),
                finds_rounding=point.operands.has_all_bits,
            )


def _new_inputs(point: Point) -> tuple[NDArray[Any], ...]:
    """Return operands that no launch has used. For a product, return only A."""
    problem, seed = point.problem, randbits(SEED_BITS)
    if not problem.operation.is_product:
        return make_inputs(problem, seed, random_fill(point.operands))
    return (make_new_values(problem, seed, point.operands, problem.input_shapes[0]),)


def instance_of(point: Point) -> Instance:
    """Return the key of a point's instance, which is compiled once for all sizes."""
    problem = point.problem
    return point.variant, point.tile, problem.dtype, problem.column_major
