"""Checks that a kernel's time does not depend on earlier contents of its output and operands.

A kernel may return early if its output is already filled, or look up its result by the values of
its operands. The results of such a kernel are right, but its times in a benchmark are far too
short. Therefore a point is launched a few more times, in addition to its samples, on a copy of its
operands. These additional launches differ in what the arrays hold before the launch. The same
number of bytes is written before each launch, so the caches are in the same state.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from secrets import randbelow
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubench.backends.rotation import OperandSets, Rotation, SetPolicy
from gpubench.engine.judge.verdict import WrongError, missing, why_dependent, why_inaccurate
from gpubench.engine.judge.verify import (
    STALE,
    WROTE_NAN,
    count_true,
    is_unchanged,
    is_unwritten,
    poison,
    relative_error,
    rows_error,
    rows_to_check,
    take_rows,
)
from gpubench.engine.operands.make import reference_of_host, widened
from gpubench.model import Problem

STAGES = ((6, -1), (6, 1), (36, 523))
"""Number of launches of each case (`Case`) in each stage, and maximum number of mixed pairs at
which two cases count as different. A further stage follows only if the times of two cases differ by
at least a ratio such as `RATIO`.

A pair is a launch of one case and a launch of the other case. A pair is mixed if the launch that a
cheating kernel would make faster is not faster. The probability that two equal cases have at most
this number of mixed pairs is 1e-6 (exact distribution of U for 12 and 48 launches of each case;
Mann and Whitney, 1947). The number -1 means that the stage decides nothing, and that a further
stage must follow."""

RATIO = 1.25
"""Smallest ratio between the times of two cases that counts as a difference, by the host's clock.
In 2 of 6 runs on a CPU that also ran other programs, a right function of 23 µs took 1.17 times as
long on operands that had just been written."""

RATIO_FILLED = 1.1
"""Smallest ratio that counts as a difference for a filled output. With this ratio, none of 760
measurements of ten right functions was judged wrong."""

RATIO_BY_EVENTS = 1.05
"""Smallest ratio that counts as a difference by the GPU's clock. On an H200, the ratio was at most
1.022 at all 54 points of 32 right kernels (ratio of the lower quartiles of 48 launches of each
case)."""

MIN_DIFFERENCE_US = 3.0
"""Smallest difference between the times of two cases that counts, in microseconds. Writing the
operands changes what the caches hold, which changes the time of a short call."""

LONG_STAGES = ((1, -1), (1, -1), (4, -1), (3, 0))  # for long launches; probability: 2e-5
LONG_RATIO = 1.5  # smallest ratio that counts as a difference for long launches

COMPARED = 4
"""If making references takes long, a result is compared with a reference only with the probability
1 / COMPARED."""

SAME = 1e-2
"""Largest difference between two results that count as equal, relative to the largest element.
Other checks are exact; this check must only notice that nothing was computed."""


class Case(StrEnum):
    """Contents of the arrays before a launch. The values are parts of the reason that users see."""

    POISONED = "nothing"  # the output holds NaN or another unlikely value, and A is unchanged
    FILLED = "what the output holds"  # the output holds the right result

    CHANGED = "operands that it has seen before"
    """The output holds an unlikely value. No earlier launch used this A, or had the rows of B in
    this order."""


_CASE_TEXT = {
    Case.FILLED: "an output that holds the result already",
    Case.CHANGED: "operands that are new",
}


def copies_of_first_set(operands: OperandSets) -> OperandSets:
    """Return operands with a single set, which is a copy of the first set of `operands`."""
    return replace(
        operands,
        sets=(tuple(x.copy(order="K") for x in operands.sets[0]),),
        policy=SetPolicy(count=1, flush=False),
        rotation=Rotation(1),
    )


def require_independent(
    operands: OperandSets,
    time_us: Callable[[], float],
    xp: Any,
    *,
    new_inputs: Callable[[], Sequence[NDArray[Any]]],
    is_long: bool,
    by_events: bool = False,
    reads_output: bool = False,
    cases: Sequence[Case] = tuple(Case),
) -> None:
    """Raise WrongError if the time or the result of a launch depends on earlier contents of arrays.

    `operands` has a single set (`copies_of_first_set`), whose operands are overwritten in place.
    `time_us` launches once on this set and returns the time in microseconds. With `by_events`,
    events of the GPU measure this time. `new_inputs` returns operands that no launch has seen. For
    a product, it returns only A, because the rows of B are moved. With `is_long`, a right kernel is
    launched only once in each case, because launches take long. `cases` are compared with the case
    `POISONED`.
    """
    once = _Launches(operands, time_us, xp, new_inputs, reads_output=reads_output).once
    # The time of a kernel that reads its output may depend on a filled output.
    left_out = {Case.POISONED, *([Case.FILLED] if reads_output else [])}
    cases = [Case.POISONED, *(case for case in cases if case not in left_out)]
    limit = RATIO_BY_EVENTS if by_events else RATIO
    limits = dict.fromkeys(Case, limit) | {Case.FILLED: min(limit, RATIO_FILLED)}
    if is_long:
        limits = dict.fromkeys(Case, LONG_RATIO)
    else:
        once(Case.POISONED)  # not timed: the first launch computes the right result
    times_us: dict[Case, list[float]] = {case: [] for case in cases}
    for turns, max_mixed_pairs in LONG_STAGES if is_long else STAGES:
        _extend(times_us, once, turns)
        suspects = [x for x in cases if _counts(*_by_suspicion(times_us, x), limits[x])]
        if not suspects:
            return
        for case in suspects:
            if _mixed_pairs(*_by_suspicion(times_us, case)) <= max_mixed_pairs:
                without_it, with_it = median(times_us[Case.POISONED]), median(times_us[case])
                why = why_dependent(case, without_it, _CASE_TEXT[case], with_it)
                raise WrongError(why, may_be_load=True)


class _Launches:
    """Launches a kernel on overwritten operands, and judges the results."""

    def __init__(
        self,
        operands: OperandSets,
        time_us: Callable[[], float],
        xp: Any,
        new_inputs: Callable[[], Sequence[NDArray[Any]]],
        *,
        reads_output: bool,
    ) -> None:
        self._problem, self._host_seen = operands.problem, operands.host_inputs
        *self._inputs, self._output = operands.sets[0]
        self._seen = [array.copy(order="K") for array in self._inputs]
        self._time_us, self._xp, self._new_inputs = time_us, xp, new_inputs
        self._unseen: Sequence[NDArray[Any]] = ()  # new operands that no launch has had
        self._reads_output = reads_output
        self._right: Any = None  # the result of the first launch
        self._compares_by_chance = False

    def once(self, case: Case) -> float:
        """Launch once with the arrays of a case, and return the time in microseconds.

        All cases draw numbers of the same kind, and move the same number of bytes through the
        caches. An operation that defines `make` may take long to make operands. New operands that
        this launch does not use are therefore kept for the next launch. Raises WrongError if the
        result is wrong.
        """
        is_new = case == Case.CHANGED
        hosts = self._unseen or self._new_inputs()
        self._unseen = () if is_new or self._problem.operation.make is None else hosts
        moved = randbelow(len(self._inputs[-1]))
        for array, new, old in zip(self._inputs, hosts, self._seen, strict=False):
            new_copy, old_copy = self._xp.asarray(new.view(array.dtype)), old.copy(order="K")
            array[...] = new_copy if is_new else old_copy
        if self._problem.operation.is_product:
            _write_moved(self._inputs[1], self._seen[1], moved if is_new else 0)
        if self._right is not None:
            self._output[...] = self._right
        if case != Case.FILLED:
            poison(self._output, reads_output=self._reads_output)
        taken_us = self._time_us()
        is_right = self._is_new_result(hosts, moved) if is_new else self._is_seen_result()
        if not is_right:
            raise missing("it kept what the output held, or the result of earlier operands")
        return taken_us

    def _is_seen_result(self) -> bool:
        if self._right is None:
            return self._is_first_result()
        if self._problem.operation.comparison:
            return self._has_seen_bits or self._is_result()
        return _is_same(self._xp, self._output, self._right)

    def _is_first_result(self) -> bool:
        is_right = self._is_result()
        if not is_right and not self._reads_output and is_unwritten(self._xp, self._output):
            is_stale = is_unchanged(self._xp, self._output)
            raise missing(STALE if is_stale else WROTE_NAN)
        self._right = self._output.copy(order="K")
        return is_right

    @property
    def _has_seen_bits(self) -> bool:
        """Whether the output has the same bits as the first result."""
        return not count_true(self._output != self._right)

    def _is_new_result(self, hosts: Sequence[NDArray[Any]], moved: int) -> bool:
        """Whether the output is right for new operands.

        If operands take long to make, making their reference may take long, too. Only the first
        result and some random later results are then compared with a reference. All other results
        must differ from the result of earlier operands.
        """
        if (
            self._problem.operation.make
            and self._compares_by_chance
            and randbelow(COMPARED)
            and not is_unwritten(self._xp, self._output)
            and not self._has_seen_bits
        ):
            return True
        self._compares_by_chance = True
        return self._is_result(hosts, moved)

    def _is_result(self, new: Sequence[NDArray[Any]] = (), moved: int = 0) -> bool:
        hosts = (*new, *self._host_seen[len(new) :])
        error = _error(self._xp, self._problem, hosts, moved, self._output)
        return not why_inaccurate(error, self._problem.tolerance)


def _error(
    xp: Any, problem: Problem, hosts: Sequence[NDArray[Any]], moved: int, output: Any
) -> float:
    """Return the largest relative error of a result on operands in host memory.

    For a product, the rows of B are first moved down by `moved` places, and only some rows of the
    result are compared.
    """
    if not problem.operation.is_product:
        reference = reference_of_host(xp, problem.op, hosts)
        return relative_error(xp, output, reference, problem.precision.result_roundoff)
    first, second = (xp.asarray(widened(host)) for host in hosts)
    rows = rows_to_check(problem)
    part = take_rows(output, rows) if problem.operation.is_by_rows else output
    return rows_error(xp, problem, (first, xp.roll(second, moved, axis=0)), rows, part)


def _write_moved(array: Any, rows: Any, places: int) -> None:
    """Copy rows into an array, `places` rows further down. The last rows move to the top."""
    end = len(rows) - places
    array[:places], array[places:] = rows[end:], rows[:end]


def _extend(times_us: dict[Case, list[float]], once: Callable[[Case], float], turns: int) -> None:
    """Launch each case `turns` times, and append the times to `times_us`.

    Each turn has a new order of the cases, so a disturbance affects all cases. The very first
    launch is of the case `POISONED`, because later results are compared with the result of this
    launch.
    """
    order = random.Random(len(times_us[Case.POISONED]))  # noqa: S311 # an order, not a secret
    for _ in range(turns):
        cases = list(times_us)
        if times_us[Case.POISONED]:
            order.shuffle(cases)
        for case in cases:
            times_us[case].append(once(case))


def _by_suspicion(times_us: dict[Case, list[float]], case: Case) -> tuple[list[float], list[float]]:
    """Return the times that cheating makes short, and the times that cheating does not make short.

    A kernel that cheats is fast if its output is filled, or if it has seen its operands before.
    """
    before_us = times_us[Case.POISONED]
    return (before_us, times_us[case]) if case == Case.CHANGED else (times_us[case], before_us)


def _counts(short_us: list[float], long_us: list[float], limit: float) -> bool:
    """Whether the lower quartiles of two cases differ so much that the difference counts.

    Lower quartiles are compared because disturbances hardly change them.
    """
    low, high = (sorted(times_us)[len(times_us) // 4] for times_us in (short_us, long_us))
    return high > limit * low and high - low > MIN_DIFFERENCE_US


def _mixed_pairs(short_us: list[float], long_us: list[float]) -> int:
    """Return the number of pairs in which the launch of `short_us` is not the shorter launch.

    The number depends only on the order of the times, so a few disturbed launches do not hide a
    difference.
    """
    return sum(x >= y for x in short_us for y in long_us)


def _is_same(xp: Any, output: Any, right: Any) -> bool:
    """Whether two results are equal up to rounding. False if either result has a NaN."""
    if output.dtype.kind == "i":
        return not count_true(output != right)
    difference = xp.abs(output.astype(np.float64) - right.astype(np.float64)).max()
    return bool(difference <= SAME * xp.abs(right.astype(np.float64)).max())
