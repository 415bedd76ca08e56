"""Judges measurements of users' kernels from outside the process that runs them."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from secrets import randbelow, randbits
from typing import Any

import numpy as np

from gpubench.engine.child.supervisor import Supervisor
from gpubench.engine.judge.probe import require_exact_outputs
from gpubench.engine.judge.probe_size import probe_problem, unusual_problem
from gpubench.engine.judge.verdict import WrongError, as_judged, as_lost, missing
from gpubench.engine.judge.verify import right_on
from gpubench.engine.measure.examiner import Examiner
from gpubench.engine.measure.trials import Instance, instance_of
from gpubench.engine.operands.make import SEED_BITS, make_inputs, random_fill
from gpubench.engine.outside.on_new_operands import OnNewOperands
from gpubench.engine.outside.parent_clock import require_time
from gpubench.errors import ChildLostError
from gpubench.model import (
    CPU_TIMERS,
    CallVariant,
    Device,
    Measurement,
    Point,
    Scope,
    Status,
    Timer,
    Timing,
    Variant,
)
from gpubench.plan.scrutiny import scrutiny_of

MAX_JUDGED_BYTES = 2**31  # results of larger problems are judged only in the child

LIBRARY_KERNELS = re.compile(
    r"nvjet|cutlass|cublas|cudnn|xmma|splitKreduce|gemmSN|gemmk1|gemv2|gemvNSP"
    r"|^(maxwell|volta|turing|ampere|hopper|sm\d+)_",
    re.IGNORECASE,  # the text may be CuPy's reason why cuBLAS cannot be captured
)
"""Matches the names of kernels of cuBLAS and cuDNN, and the names of CUTLASS's templates."""


class Examination:
    """Judges a child's measurements, and requests further launches from the child.

    A user's function could change the checks and the clock in its own process. So in every round,
    this process draws seeds of operands, and compares the function's results on these operands. In
    addition, the clock of this process measures the time of the function. This clock also checks
    some of the times of CUDA sources (`Timing.examined_in`).
    """

    def __init__(
        self, child: Supervisor, device: Device, keep: Callable[..., Any] | None = None
    ) -> None:
        self._child, self._device = child, device
        self._keep = keep
        """Function that calls a method in another process (`Wall.keep`). None on a CPU, where this
        process owns the outputs."""

        self._fragile: set[Variant] = set()
        """Variants that ended a child at an unusual size. Other tiles of these variants are not
        launched at such sizes, because starting a new child takes seconds."""

        self._notes: dict[Instance, str] = {}  # the note on each instance at an unusual size

    def judge(
        self, result: Measurement, timing: Timing, *, is_first: bool
    ) -> tuple[Measurement, bool]:
        """Return the judged measurement, and whether other work may have made it wrong."""
        point, limit_s = result.point, timing.hang_s
        request: Callable[..., Any] = partial(self._child.request, limit_s)
        try:
            is_function = scrutiny_of(point.variant).has_own_process
            is_timed_here, operation = point.timer == Timer.OUTSIDE, point.problem.operation
            if is_function and not operation.is_uniform and not is_timed_here:
                _require_result(request, point)
            if is_function and operation.has_product:
                at = probe_problem(point, self._device.compute_capability)
                outputs = request(Examiner.probe_outputs, point)
                require_exact_outputs(outputs, at, result.seed or 0)
            if not is_timed_here and (
                is_function or is_first or randbelow(timing.examined_in) == 0
            ):
                result = self._timed(result, request, limit_s)
        except WrongError as wrong:
            return as_judged(result, wrong), wrong.may_be_load
        except ChildLostError as lost:
            return as_lost(result, lost), False
        notes = library_note(result), self._note_of_unusual_size(point, limit_s)
        unseen = (note for note in notes if note not in result.notes)
        return replace(result, notes=_joined(result.notes, *unseen)), False

    def _timed(
        self, result: Measurement, request: Callable[..., Any], limit_s: float
    ) -> Measurement:
        """Return the measurement with its `clock_ratio`.

        The ratio is the time by this process's clock, divided by the time that the child reported.
        Raises WrongError and ChildLostError.
        """
        point, pid, ratio = result.point, self._child.living.pid, None
        is_function = scrutiny_of(point.variant).has_own_process
        operation, is_judged = point.problem.operation, _has_judged_size(point)
        is_walled = is_function and point.scope == Scope.KERNEL
        keep = partial(self._keep, limit_s) if self._keep and is_walled else None
        why_open = f"the arrays exceed {MAX_JUDGED_BYTES:,} bytes"
        if is_function and is_judged:
            on_new_operands = OnNewOperands(request, pid, result, self._device, keep)
            ratio, why_open = on_new_operands.judge(), on_new_operands.why_open
            if ratio is None:
                why_open = why_open or "the launches are too short, or cannot wait in the queue"
        if keep and operation.is_uniform:
            result = replace(
                result,
                is_walled=not why_open,
                notes=_joined(
                    result.notes, why_open and f"no other process confirms this time: {why_open}"
                ),
            )
        if ratio is None:
            ratio = require_time(
                result.series.median_us if result.series else 0.0,
                lambda launches: request(Examiner.repeat, point, launches),
                pid,
                by_events=point.timer not in CPU_TIMERS,
            )
        if ratio is None and is_judged and operation.is_product and not is_function:
            ratio = OnNewOperands(request, pid, result, self._device).judge()
        return replace(result, clock_ratio=ratio)

    def with_clock_ratio(self, result: Measurement, timing: Timing, seed: int) -> Measurement:
        """Return the measurement of a library with its `clock_ratio`.

        On a GPU, the library is timed in the same way as the users' functions in the same sweep.
        `seed` is the seed of the library's operands. If the ratio cannot be measured, it is None.
        """
        point, limit_s = result.point, timing.hang_s
        is_tuned = isinstance(point.variant, CallVariant) and point.variant.tune is not None
        is_judged = result.status == Status.OK and _has_judged_size(point) and not is_tuned
        if self._keep is None or not is_judged:
            return result
        request, keep = (partial(each, limit_s) for each in (self._child.request, self._keep))
        pid, result = self._child.living.pid, replace(result, seed=seed)
        try:
            ratio = OnNewOperands(request, pid, result, self._device, keep).judge()
        except (WrongError, ChildLostError):
            ratio = None
        return replace(result, clock_ratio=ratio, seed=None)

    def _note_of_unusual_size(self, point: Point, limit_s: float) -> str:
        """Return a note on a launch at an unusual size. Each instance has only one such launch.

        A kernel that does not check its bounds is right only at some sizes. The launch may end the
        child, but at most once for each variant.
        """
        instance = instance_of(point)
        if instance in self._notes:
            return self._notes[instance]
        note = ""
        try:
            if point.variant not in self._fragile:
                note = self._child.request(limit_s, Examiner.at_unusual_size, point)
                if not self._child.usable:
                    self._fragile.add(point.variant)
                    self._child.end()
        except ChildLostError as lost:
            self._fragile.add(point.variant)
            unusual = unusual_problem(point, self._device.compute_capability)
            note = f"right at this size; {lost.why} at {unusual.size if unusual else ''}"
        self._notes[instance] = note
        return note


def _has_judged_size(point: Point) -> bool:
    return point.problem.operation.is_uniform and point.problem.bytes <= MAX_JUDGED_BYTES


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _require_result(request: Callable[..., Any], point: Point) -> None:
    """Raise WrongError unless a function's result is right on new operands.

    This process draws the seed of the operands. Making the operands and the reference may take
    long. So this process makes the operands and the reference while the child makes the same
    operands and launches the function.
    """
    problem, seed = point.problem, randbits(SEED_BITS)

    def right() -> Callable[[Any], None]:
        inputs = make_inputs(problem, seed, random_fill(point.operands))
        return right_on(np, problem, inputs, at_once=True)

    with ThreadPoolExecutor(1) as beside:
        made = beside.submit(right)
        content = request(Examiner.result_on, point, seed)
        require_right = made.result()
    kind = np.dtype(problem.types[-1])
    if len(content) != problem.bytes_of_arrays[-1]:
        raise missing(f"{len(content)} bytes at {problem.size}")
    output = np.frombuffer(content, kind).reshape(problem.output_shape)
    require_right(output)


def library_note(result: Measurement) -> str:
    """Return a note if a function runs a library's kernels, but does not state the library."""
    variant = result.point.variant
    if not isinstance(variant, CallVariant) or variant.libraries:
        return ""
    names = [name for name in result.kernels_run.split("; ") if LIBRARY_KERNELS.search(name)]
    return f"the function runs kernels of a library: {', '.join(names)}" if names else ""
