"""Judges results and times of launches on operands that no kernel can know in advance."""

import math
from collections.abc import Callable
from secrets import randbelow, randbits
from time import perf_counter
from typing import Any

import numpy as np

from gpubench.engine.judge.cause import why_wrong_rows
from gpubench.engine.judge.verdict import WrongError, missing, require, why_dependent
from gpubench.engine.judge.verify import CHECKED_ROWS, is_unwritten, require_right_on
from gpubench.engine.measure.empty_requests import EmptyRequests
from gpubench.engine.measure.examiner import Examiner
from gpubench.engine.measure.keeper import Keeper
from gpubench.engine.operands.make import (
    SEED_BITS,
    make_inputs,
    make_new_values,
    new_operand,
    new_rows,
    transposed,
    widened,
)
from gpubench.engine.outside.parent_clock import AGREEING_S, LAUNCH_US, PATIENCE_S, timed
from gpubench.errors import ChildLostError, DeviceUnavailableError, first_line
from gpubench.model import CLOCKS_AGREE, Cache, Device, Launches, Measurement, Scope, Timer

MAX_LAUNCHES = 32
"""Maximum number of launches on new operands in one request on a CPU. A request has several short
launches, so that it takes much longer than a request without launches."""

MAX_BYTES = 2**22  # maximum total bytes of the problems of such a request's launches
HELD_US = (50.0, 2e4)
"""Total times of a request's launches on a GPU, in microseconds. If the launches take the first
time or longer, the ratio of the two clocks counts. The number of launches is chosen to reach the
second time."""

HELD_LAUNCHES = (8, 256)  # minimum and maximum number of launches on a GPU
HELD_BYTES = 2**31  # maximum total bytes of the problems of a request's launches on a GPU

BESIDE_S = 5e-3
"""Assumed time of a request without its launches, if this time is not measured. If only the
function's own process can measure this time, at most `BESIDE_S` is subtracted."""

LATE_S = 1.5e-3
"""Maximum time by which a request may exceed the sum of its launches' time and the time of a
request without launches. If a request takes longer, the reported time is judged wrong. On an H200,
requests exceeded this sum by up to 0.5 ms with launches of 8 µs, and by up to 1.1 ms with launches
of 3 ms. Requests with a library's launches in the same sweep exceeded the sum, too.
"""

HELD_REQUESTS = 10
"""Number of requests without a launch. The time of the shortest request is subtracted."""

CHECKED_BYTES = 2**20
"""Maximum number of bytes of a result that is read whole before the clock stops, if single rows
cannot be compared. Only some elements of a larger result are then read, because reading 64 MB took
31 ms, and this time varies by more than `LATE_S`."""

CHECKED_ELEMENTS = 1024  # number of elements that are read from a larger result

NEW_RATIO = 2.0
"""Ratio of the time on new operands to the reported time, above which the reported time is judged
wrong. For a hot cache, the time to fetch new operands from memory is added to the reported time.
The clock and the load of the device may differ between the two measurements."""

NOT_YET = "the result was not written when its launch had ended"
NOT_YET_OR_NAN = f"{NOT_YET}, or all of its elements are NaN"

FEWER = 4  # divisor of the number of launches, if the launches do not fit into the queue of a GPU


class OnNewOperands:
    """Launches a measured point on a new A or a new B, which a seed of this process determines.

    The other operand is the same as in the timed launches. A random choice decides whether A or B
    is new. So gpubench detects a function that keeps results for known values of A or B.
    """

    def __init__(
        self,
        request: Callable[..., Any],
        pid: int,
        result: Measurement,
        device: Device,
        keep: Callable[..., Any] | None = None,
    ) -> None:
        self._request, self._pid, self._point = request, pid, result.point
        self._keep = keep  # calls a method in a process that never runs a user's function
        self._content = b""  # the chosen results of the latest request
        self._reported_us = result.series.median_us if result.series else 0.0
        problem, fill, seed = self._point.problem, self._point.operands, result.seed or 0
        self._values = make_new_values(problem, seed, fill)
        is_either = problem.operation.is_product and problem.operation.has_layouts
        self._position = randbelow(2) if is_either else 0
        self._others = [
            x for at, x in enumerate(make_inputs(problem, seed, fill)) if at != self._position
        ]
        if self._position:
            self._others = [x.T for x in self._others]
        self._problem = transposed(problem) if self._position else problem
        """The problem of the launches. If B is new, the problem is transposed, so that the new
        operand is always the first operand."""

        bandwidth = device.memory_bandwidth_gbytes_per_s
        self._is_hot = self._point.cache == Cache.HOT
        from_memory_us = problem.bytes / bandwidth / 1e3 if bandwidth else 0.0
        self._from_memory_us = from_memory_us if self._is_hot else 0.0
        # Other times are not comparable: CUPTI omits gaps, and end-to-end times include copies.
        self._is_timed = (self._point.timer, self._point.scope) == (Timer.EVENTS, Scope.KERNEL)
        self._launches = self._sets = max(1, self._number())
        self._seed = 0
        self.why_open = self._share_outputs()
        """Reason why no other process can own the function's results. The reason is an empty text
        if another process owns the results, or if the function's process may own them."""

    def _number(self) -> int:
        """Return a number of launches that together take long enough to be timed."""
        bytes_of_one = self._point.problem.bytes
        if self._point.variant.fixed_addresses:
            return 1
        if not self._is_timed:  # the time to enqueue such launches is included
            return min(MAX_LAUNCHES, MAX_BYTES // bytes_of_one)
        return min(HELD_BYTES // bytes_of_one, self._enough())

    def _enough(self) -> int:
        min_launches, max_launches = HELD_LAUNCHES
        return min(
            max_launches, max(min_launches, math.ceil(HELD_US[1] / max(self._reported_us, 1.0)))
        )

    def _share_outputs(self) -> str:
        """Let a process without users' functions own the outputs of all launches.

        Return why no such process can own the outputs, or an empty text.
        """
        problem, keep = self._point.problem, self._keep
        self._keep = None
        if not keep:
            return ""
        try:
            handle, why = keep(Keeper.keep, problem, self._sets)
            why = why or keep(EmptyRequests.make_room, problem, self._sets, self._position)
        except (ChildLostError, DeviceUnavailableError) as error:
            return f"no second process can use the GPU: {first_line(error)}"
        why = why or self._request(Examiner.open_outputs, problem, handle, self._sets)
        self._keep = None if why else keep
        return str(why)

    def judge(self) -> float | None:
        """Return the time by this process's clock, divided by the reported time.

        Return None on a CPU. On a GPU, return None if the queue cannot hold the launches, or if the
        launches are too short. Raises ChildLostError, and raises WrongError for a wrong result or a
        time that is too long.

        Each launch has a new operand. If the cache is hot for the timed launches, these launches
        may be slower, because their operands come from memory. The ratio is then measured again
        with launches on a single new operand, which is in the cache for all launches except the
        first. A function could compute only the first of these launches, so this second measurement
        is omitted if another process owns the outputs.
        """
        self._fit_queue()
        self._launches = self._sets = max(1, self._launches)
        ratio = self._ratio(0.0 if self._is_hot else AGREEING_S)
        agrees = ratio is not None and ratio <= CLOCKS_AGREE
        if self._is_timed and self._is_hot and not agrees and not self._keep:
            self._launches, self._sets = self._enough(), 1
            self._fit_queue()
            ratio = self._ratio(AGREEING_S) if self._is_timed else ratio
        return ratio

    def _ratio(self, agreeing_s: float) -> float | None:
        """Return the ratio for `judge`, or None if times are too short or cannot be compared.

        The launches are repeated until the ratio is at most `CLOCKS_AGREE`, but not longer than
        `agreeing_s`. Raises WrongError.
        """
        beside_s, least_us, started = BESIDE_S, math.inf, perf_counter()
        if self._is_timed and (keep := self._keep):
            beside_s = min(self._nothing_s(keep) for _ in range(HELD_REQUESTS))
        elif self._is_timed:
            beside_s = min(beside_s, *(self._taken_s(0) for _ in range(HELD_REQUESTS)))
        beside_us = 1e6 * beside_s / self._launches + (0.0 if self._is_timed else LAUNCH_US)
        late_us = 1e6 * LATE_S / self._launches if self._keep else 0.0
        spent_s = 0.0
        while spent_s < PATIENCE_S:
            taken_s = self._taken_s(self._launches)
            self._require_results()
            least_us = min(least_us, 1e6 * taken_s / self._launches)
            new_us = max(0.0, least_us - beside_us)
            spent_s = perf_counter() - started
            is_slow = new_us > CLOCKS_AGREE * self._reported_us
            if is_slow and self._is_timed and spent_s < agreeing_s:
                continue
            if new_us - late_us <= NEW_RATIO * (self._reported_us + self._from_memory_us):
                is_long = self._launches * self._reported_us >= HELD_US[0]
                return new_us / self._reported_us if self._is_timed and is_long else None
        on_used, on_new = "operands that it has seen before", "operands that are new"
        why = why_dependent(
            on_used, self._reported_us, f"{on_new}, by the clock of another process", least_us
        )
        raise WrongError(why, may_be_load=True)

    def _fit_queue(self) -> None:
        """Reduce the number of launches until they fit into a GPU's queue, or are too few."""
        while self._is_timed:
            fits = self._put(self._launches)
            self._request(Examiner.launch_on_new_operands, 1)
            if fits:
                return
            self._launches //= FEWER
            self._is_timed = self._launches >= min(HELD_LAUNCHES)
            self._sets = min(self._sets, self._launches)

    def _put(self, launches: int) -> bool:
        self._seed = randbits(SEED_BITS) | 1  # 0 means that there is no seed yet
        chosen = launches, self._position, self._sets, self._in_queue
        put: bool = self._request(Examiner.put_new_operands, self._point, *chosen)
        return put

    @property
    def _in_queue(self) -> bool:
        """Whether launches are enqueued before the seed is sent. False in the mode `waited`."""
        return self._is_timed and self._point.launches != Launches.WAITED

    def _taken_s(self, launches: int) -> float:
        """Return the time from a request for launches until some of the results are copied.

        A function could let its process wait for a core while the GPU computes. So waiting time
        also counts, if another process owns the outputs. Raises WrongError if a result changes
        later.
        """
        if not self._put(launches):
            raise ChildLostError("no longer has memory or a queue for its launches")

        def request() -> bytes:
            self._request(Examiner.launch_on_new_operands, self._seed)
            return self._read_results()

        self._content, taken_s, elapsed_s, _ = timed(request, self._pid)
        if self._elements:
            elements, self._content = self._content, self._read_whole()
            count, item = math.prod(self._problem.output_shape), len(elements) // CHECKED_ELEMENTS
            if len(self._content) != count * item or not item:
                raise missing(f"{len(self._content)} bytes at {self._problem.size}")
            whole = np.frombuffer(self._content, f"V{item}")
            if whole[self._elements].tobytes() != elements:
                raise WrongError(NOT_YET)
        return elapsed_s if self._keep else taken_s

    def _nothing_s(self, keep: Callable[..., Any]) -> float:
        """Return the time of a request without launches, in a process without foreign code.

        In its own process, a user's function could lengthen requests without launches.
        """
        keep(EmptyRequests.put_new_operands, self._sets, self._in_queue)
        started = perf_counter()
        keep(EmptyRequests.launch_on_new_operands, randbits(SEED_BITS) | 1)
        self._read_results()
        return perf_counter() - started

    def _read_results(self) -> bytes:
        """Choose results of the last launch and of random launches, and read them.

        If single rows of a result can be compared, read rows. Otherwise read elements of a large
        output, or a whole small output.
        """
        last, shape = self._sets - 1, self._problem.output_shape
        self._copies, self._rows, self._elements = [last], [], []
        if self._problem.operation.is_product and self._problem.operation.is_by_rows:
            self._rows = [randbelow(shape[0]) for _ in range(CHECKED_ROWS)]
            self._copies += [randbelow(self._sets) for _ in self._rows[1:]]
        elif randbelow(2):
            self._copies = [randbelow(self._sets)]
        count = math.prod(shape)
        if self._rows or self._problem.bytes_of_arrays[-1] <= CHECKED_BYTES:
            return self._read_whole()
        self._elements = [randbelow(count) for _ in range(CHECKED_ELEMENTS)]
        return self._read(Keeper.read_elements, self._copies[0], self._elements)

    def _read_whole(self) -> bytes:
        """Read the rows that `_read_results` chose, or a whole output if it chose no rows."""
        return self._read(Keeper.read_results, self._copies, self._rows, self._position)

    def _read(self, method: Callable[..., bytes], *chosen: Any) -> bytes:
        """Read results from the keeper's process if there is a keeper, or else from the child."""
        if self._keep:
            content: bytes = self._keep(method, *chosen)
        else:
            content = self._request(getattr(Examiner, method.__name__), *chosen)
        return content

    def _require_results(self) -> None:
        """Raise WrongError unless the results that were read are right."""
        problem, content, copies = self._problem, self._content, self._copies
        shape = problem.output_shape
        if rows := self._rows:
            shape = (len(rows), *shape[1:])
        kind = np.dtype(problem.types[-1])
        if len(content) != kind.itemsize * math.prod(shape):
            raise missing(f"{len(content)} bytes at {problem.size}")
        output = np.frombuffer(content, kind).reshape(shape)
        if is_unwritten(np, output):
            raise WrongError(NOT_YET if output.dtype.kind in "iu" else NOT_YET_OR_NAN)
        if not problem.operation.is_product:
            first = new_operand(problem, self._values, self._seed, copies[0])
            require_right_on(np, problem, (first, *self._others), output)
            return
        if not rows:
            rows = list(range(problem.input_shapes[0][0]))
            copies = copies * len(rows)
        first = new_rows(problem, self._values, self._seed, copies, rows)
        reason, error = why_wrong_rows(
            problem,
            (widened(first), *map(widened, self._others)),
            range(shape[0]),
            output,
            finds_rounding=self._point.operands.has_all_bits,
            is_transposed=self._position == 1,
        )
        require(reason, error)
