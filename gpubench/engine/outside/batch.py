"""Measures how long the launches of a request take, by the clock of this process.

This process also owns the operands and the outputs.
"""

import os
from collections.abc import Iterable, Sequence
from mmap import mmap
from operator import itemgetter
from secrets import randbelow
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubench.engine.child.supervisor import Supervisor
from gpubench.engine.judge.cause import why_wrong_rows
from gpubench.engine.judge.verdict import require, why_nan_is_lost
from gpubench.engine.judge.verify import CHECKED_ROWS, poison, require_right_on, take_rows
from gpubench.engine.measure.walled import Walled
from gpubench.engine.operands.make import widened
from gpubench.engine.operands.shared import shared_bytes, shared_sets
from gpubench.grouping import grouped
from gpubench.model import Problem
from gpubench.process.descendants import cpu_ns, descendants, resident_bytes
from gpubench.process.shared_memory import new_file, new_sealed_file

CHECKED_RESULTS = 2  # number of whole results that are compared, if single rows cannot be compared


class Observed(NamedTuple):
    """What the parent observes about a request, apart from the results."""

    wall_us: float  # time from sending the operands until rows of the results were copied
    cpu_us: float  # CPU time of all processes of the child
    child_us: float  # time per launch by the child's clock
    lost: int  # number of the child's processes that ended during the request
    held_bytes: int = 0  # memory of all processes of the child after it has released the operands


class Batch:
    """A batch of launches of one problem. Each launch has its own operands and its own output."""

    def __init__(self, child: Supervisor, problem: Problem, launches: int, limit_s: float) -> None:
        """Share the memory of the outputs with a child. Raises ChildLostError."""
        self._child, self._limit_s = child, limit_s
        self.problem, self.launches = problem, launches
        input_bytes, output_bytes = shared_bytes(problem, launches)
        self._contents = [np.zeros(input_bytes, np.uint8) for _ in range(2)]
        """The operands of this request and of the previous request."""

        self._spans: Sequence[bool] = ()
        self._nan: tuple[int, int] | None = None  # the launch and the row of A with a NaN
        self._chosen: list[tuple[int, Sequence[int], NDArray[Any]]] = []
        """Results that are compared. Each tuple has the index of a launch, row numbers of its
        result, and copies of these rows."""

        descriptor = new_sealed_file(output_bytes)
        try:
            self._outputs = np.frombuffer(mmap(descriptor, output_bytes), np.uint8)
            child.request_with_file(descriptor, limit_s, Walled.prepare, problem, launches)
        finally:
            os.close(descriptor)

    @property
    def _has_rows(self) -> bool:
        """Whether a row of a result can be compared without the other rows."""
        return self.problem.operation.is_product and self.problem.operation.is_by_rows

    def _sets(self, age: int = 0) -> tuple[tuple[Any, ...], ...]:
        """Return the arrays of each launch.

        The launches are of this request if `age` is 0, and of the previous request if `age` is 1.
        """
        return shared_sets(self.problem, self.launches, self._contents[age], self._outputs)

    def fill(
        self,
        operands: Iterable[Sequence[Any]],
        spans: Sequence[bool],
        *,
        reads_output: bool = False,
        has_nan: bool = False,
    ) -> None:
        """Keep the operands of each launch, and fill the outputs with poison.

        `spans` states for each launch whether its operands span their type (`outside.values`).
        Outputs that launches read get zeros instead of poison. If `has_nan` is true, one element of
        A is NaN in one launch. A NaN is used only if each row of the result is computed from one
        row of A, in floating-point numbers.
        """
        self._contents.reverse()
        self._spans, sets = spans, self._sets()
        for (*arrays, output), new in zip(sets, operands, strict=True):
            for array, values in zip(arrays, new, strict=True):
                array[...] = values
            poison(output, reads_output=reads_output)
        first, *_, output = sets[0]
        self._nan = None
        if has_nan and self._has_rows and output.dtype.kind != "i":
            self._nan = randbelow(self.launches), randbelow(len(first))
            sets[self._nan[0]][0][self._nan[1], randbelow(first.shape[1])] = np.nan

    def launch(self, count: int | None = None) -> Observed:
        """Send the operands to the child, launch on them, and copy rows of the results.

        `count` is the number of launches, by default all launches of the batch. Raises
        ChildLostError.
        """
        launches, descriptor = self.launches if count is None else count, new_file()
        warden, sets = self._child.living.process.pid, self._sets()
        try:
            _write(descriptor, self._contents[0])
            before = {pid: cpu_ns(pid) for pid in descendants(warden)}
            started = perf_counter_ns()
            child_us = self._child.request_with_file(
                descriptor, self._limit_s, Walled.launch, launches
            )
            self._chosen = self._copied_rows(sets)
            wall_us = (perf_counter_ns() - started) / 1e3
            after = {pid: ns for pid in descendants(warden) if (ns := cpu_ns(pid))}
        finally:
            os.close(descriptor)
        self._child.request(self._limit_s, Walled.release)
        return Observed(
            wall_us=wall_us,
            cpu_us=sum(ns - before.get(pid, 0) for pid, ns in after.items()) / 1e3,
            child_us=child_us,
            lost=len(before.keys() - after.keys()),
            held_bytes=sum(map(resident_bytes, after)),
        )

    def _copied_rows(
        self, sets: Sequence[tuple[Any, ...]]
    ) -> list[tuple[int, Sequence[int], NDArray[Any]]]:
        """Copy random rows from the results of the last launch and of some random launches."""
        height = self.problem.output_shape[0]
        others = CHECKED_ROWS - 1 if self._has_rows else CHECKED_RESULTS - 1
        launches = [self.launches - 1, *(randbelow(self.launches) for _ in range(others))]
        if not self._has_rows:
            return [(each, range(height), sets[each][-1].copy()) for each in set(launches)]
        chosen = grouped(((launch, randbelow(height)) for launch in launches), itemgetter(0))
        if self._nan:
            chosen.setdefault(self._nan[0], []).append(self._nan)
        return [
            (launch, rows := [row for _, row in pairs], take_rows(sets[launch][-1], rows))
            for launch, pairs in chosen.items()
        ]

    def require_right(self, *, finds_rounding: bool) -> None:
        """Raise WrongError unless the copied rows are rows of right results.

        If an element of A is NaN, the whole row of the result must be NaN. With `finds_rounding`,
        operands that do not span their type have random bits, so that the errors of the results
        show whether operands were rounded.
        """
        sets, earlier = self._sets(), self._sets(1)
        for launch, chosen, copies in self._chosen:
            inputs, before = (tuple(map(widened, x[launch][:-1])) for x in (sets, earlier))
            if not self.problem.operation.is_product:
                require_right_on(np, self.problem, inputs, copies)
                continue
            has_nan = np.array([(launch, row) == self._nan for row in chosen])
            rows, output = list(chosen), copies
            if has_nan.any():
                is_nan = np.isnan(copies[has_nan].astype(np.float64))
                require(why_nan_is_lost(is_nan.ravel().tolist()))
                rows, output = list(np.asarray(chosen)[~has_nan]), copies[~has_nan]
            if not rows:
                continue
            has_all_bits = finds_rounding and not self._spans[launch]
            reason, error = why_wrong_rows(
                self.problem, inputs, rows, output, before, finds_rounding=has_all_bits
            )
            require(reason, error)


def _write(descriptor: int, content: NDArray[np.uint8]) -> None:
    done = 0
    while done < content.size:
        done += os.pwrite(descriptor, content[done:].data, done)
