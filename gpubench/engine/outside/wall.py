"""Measures and judges launches on a CPU from outside the process that launches.

Each request sends the child an open file with operands that the child could not know before. The
clock starts before the child gets the file. The outputs are in the memory of this process. When the
child answers, this process chooses rows, copies them, and stops the clock. Results that are written
later are never read.

The time of launches is at least the CPU time of all processes of the child, divided by the number
of threads. The time of a request without launches is measured in a child that never ran foreign
code, and is subtracted.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from secrets import randbits
from statistics import median
from time import perf_counter
from typing import Any

from gpubench.engine.child.supervisor import START_LIMIT_S, Supervisor
from gpubench.engine.judge.verdict import WrongError, as_judged, as_lost
from gpubench.engine.measure.keeper import Keeper
from gpubench.engine.measure.runner import Runner
from gpubench.engine.measure.walled import Walled
from gpubench.engine.operands.make import SEED_BITS
from gpubench.engine.outside.batch import Batch, Observed
from gpubench.engine.outside.values import new_inputs, which_span
from gpubench.errors import ChildLostError, DeviceUnavailableError
from gpubench.hardware.host import cpu_threads
from gpubench.model import Health, Measurement, Problem, Series, Status, Timer, Timing
from gpubench.process.descendants import close_to_descendants, stopped

BATCH_US = 25_000.0  # intended total time of the launches of a request

LONG = 8  # a request that exceeds `BATCH_US` by this factor gets fewer launches

ALONE_US = 1000.0
"""Launches on several threads that take at least this time have a request each. Otherwise a
function could work at several launches at the same time, and each launch would seem shorter.
Requests with a single shorter launch would differ by a large part of the launch's time."""

MAX_BYTES = 2**24  # maximum bytes of the operands of a request of several launches
MAX_LAUNCHES = 256
"""Maximum number of launches of a request. More launches would be useful only if they are short,
but then making their operands takes much longer than the launches."""

MIN_REQUESTS = 3  # minimum number of timed requests in a round, unless launches are slow
MAX_REQUESTS = 5
"""Maximum number of timed requests in a round. Other work on the machine lengthens all requests
within half a second alike, so further requests of a round show little."""

MIN_GROWN_BYTES = 2**20  # minimum growth of the child's memory that is noted
MIN_GROWN_EACH = 2**10  # minimum growth per launch that is noted

EMPTY_REQUESTS = 5  # number of requests without launches, of which the shortest counts

EMPTY_SHARE = 0.05
"""If requests without launches take more than this fraction of a request, other work on the machine
may have lengthened them. The next round then measures such requests again."""


def time_us(request: Observed, empty_us: float, threads: int) -> float:
    """Return the time of a request's launches, but at least the CPU time per thread."""
    return max(request.wall_us - empty_us, request.cpu_us / threads)


def threads_of(result: Measurement) -> int:
    """Return the number of threads by which the CPU time of a measurement is divided.

    The number is the one that the variant states, or else the number that the child has chosen. It
    is at most the number of CPUs.
    """
    stated = getattr(result.point.variant, "threads", 0)
    return max(1, min(stated or result.threads or 1, cpu_threads()))


def _is_alone(result: Measurement, launch_us: float) -> bool:
    """Return whether each launch needs a request of its own (`ALONE_US`)."""
    return result.threads != 1 and launch_us >= ALONE_US


def growth_note(held_bytes: Sequence[int], launches: int) -> str:
    """Return a note if the child's memory grew with each later request of `launches` launches.

    The first half of the requests does not count: a function may fill a cache of its own.
    """
    later = held_bytes[(len(held_bytes) - 1) // 2 :]
    grown = later[-1] - later[0]
    each = grown // max(1, launches * (len(later) - 1))
    is_steady = all(now > before for before, now in pairwise(later))
    if grown < MIN_GROWN_BYTES or each < MIN_GROWN_EACH or not is_steady:
        return ""
    return f"memory grows by {each:,} bytes with each call"


class Wall:
    """Measures untrusted functions and libraries on a CPU, by the clock of this process.

    On a GPU, only the children that never run foreign code are used (`keep`).
    """

    def __init__(self, device: str) -> None:
        self._gauge = Supervisor(device, Timer.EVENTS)
        """A child that never runs foreign code, for requests without launches."""

        self._keeper = Supervisor(device, Timer.EVENTS)
        """Another child that never runs foreign code. On a GPU, this child keeps the outputs."""

        self._fault: Exception | None = None  # why these children cannot be used
        self._empties_us: dict[tuple[Problem, int], float] = {}
        """Times of requests without launches, by problem and number of launches."""

    def use_device(self, name: str) -> None:
        """Set the name of the device that later children open."""
        self._gauge.device_name = self._keeper.device_name = name

    @contextmanager
    def starting_ahead(self, backend: str) -> Iterator[None]:
        """Start the children that never run foreign code, while the `with` block runs."""
        with ExitStack() as ahead:
            for each in (self._gauge, self._keeper):
                ahead.enter_context(each.starting_ahead(backend, () if each.child else ("",)))
            yield

    def end(self) -> None:
        """End the children that never run foreign code."""
        self._gauge.end_all()
        self._keeper.end_all()
        close_to_descendants(closed=False)

    def keep(self, limit_s: float, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of `Keeper` or `EmptyRequests` in a child that never runs foreign code.

        Raises DeviceUnavailableError or ChildLostError if the call fails. All later calls then
        raise the same error, without a further attempt.
        """
        is_of_keeper = getattr(Keeper, method.__name__, None) is method
        child = self._keeper if is_of_keeper else self._gauge
        if self._fault:
            raise self._fault
        try:
            if child.child is None:
                child.open()
            return child.request(limit_s, method, *arguments)
        except (ChildLostError, DeviceUnavailableError) as error:
            self._fault = error
            raise

    def ceilings(self, dtypes: Sequence[str]) -> dict[str, float]:
        """Measure the device's highest rates in a child that never runs foreign code."""
        if self._gauge.child is None:
            self._gauge.open()
        return self._gauge.request(START_LIMIT_S, Runner.ceilings, tuple(dtypes))

    def measure(
        self, child: Supervisor, result: Measurement, timing: Timing, limit_s: float | None
    ) -> Measurement:
        """Return the measurement with times by this process's clock, or with the status `wrong`.

        `result` is the child's measurement. The time that the child measured only decides how many
        launches a request has. `limit_s` is the wall time that a budget leaves for the point.
        """
        if result.status != Status.OK or result.series is None:
            return result
        close_to_descendants()  # operands are written before a child may read them
        problem, expected_us = result.point.problem, result.series.median_us
        result = replace(result, threads=threads_of(result))
        launches = max(1, min(MAX_LAUNCHES, MAX_BYTES // problem.bytes))
        if result.point.variant.fixed_addresses or _is_alone(result, expected_us):
            launches = 1
        launches = max(1, min(launches, int(BATCH_US / max(expected_us, 1.0))))
        launches = 1 << launches.bit_length() - 1  # a power of two: few numbers, few empty requests
        try:
            return self._measured(child, result, launches, timing, limit_s)
        except WrongError as wrong:
            return as_judged(result, wrong)
        except ChildLostError as lost:
            return as_lost(result, lost)

    def _measured(
        self,
        child: Supervisor,
        result: Measurement,
        launches: int,
        timing: Timing,
        limit_s: float | None,
    ) -> Measurement:
        """Measure a point in requests of `launches` launches, or of fewer if a launch is slow.

        Raises WrongError and ChildLostError.
        """
        problem = result.point.problem
        behind = Batch(child, problem, launches, timing.hang_s)
        child.request(timing.hang_s, Walled.bind, result.point, result.threads)
        first = self._request(behind, result, is_first=True)
        if launches > 1 and _is_alone(result, first.wall_us / launches):
            return self._measured(child, result, 1, timing, limit_s)
        if launches > 1 and first.wall_us > LONG * BATCH_US:
            fewer = max(1, int(launches * BATCH_US / first.wall_us))
            return self._measured(child, result, fewer, timing, limit_s)
        # Otherwise a function could keep the CPUs busy, so that more time would be subtracted.
        with stopped(child.living.process.pid):
            empty_us = self._empty_us(problem, launches, timing.hang_s, first.wall_us)
        budget_s = timing.round_wall_s if limit_s is None else min(limit_s, timing.round_wall_s)
        is_slow = first.wall_us > 1e6 * timing.slow_launch_s
        min_requests = timing.round_few_samples if is_slow else MIN_REQUESTS
        requests: list[Observed] = []
        started = perf_counter()
        while len(requests) < min_requests or (
            len(requests) < MAX_REQUESTS and perf_counter() - started < budget_s
        ):
            requests.append(self._request(behind, result))
        series = Series(
            times_us=tuple(
                time_us(each, empty_us, result.threads or 1) / launches for each in requests
            ),
            launches_per_sample=launches,
            stop_reason="time limit",
        )
        grown = growth_note([each.held_bytes for each in requests], launches)
        child_us = median(each.child_us for each in requests)
        health = Health(overhead_us=empty_us)
        return replace(
            result,
            series=series,
            notes="; ".join(filter(None, (result.notes, grown))),
            clock_ratio=series.median_us / child_us if child_us > 0 else None,
            before=health,
            after=health,
        )

    def _request(self, behind: Batch, result: Measurement, *, is_first: bool = False) -> Observed:
        """Send a request to launch on new operands, and check the results.

        Raises WrongError and ChildLostError.
        """
        point, seed = result.point, randbits(SEED_BITS)
        launches, fill = behind.launches, point.operands
        spans = [True] * launches if is_first else which_span(seed, launches, fill)
        behind.fill(
            new_inputs(point.problem, seed, spans, fill),
            spans,
            reads_output=point.variant.reads_output,
            has_nan=is_first,
        )
        request = behind.launch()
        behind.require_right(finds_rounding=fill.has_all_bits)
        if request.lost:
            raise ChildLostError("ended a process during its launches, whose time is then unknown")
        return request

    def _empty_us(
        self, problem: Problem, launches: int, limit_s: float, request_us: float
    ) -> float:
        """Return the time of a request with operands of the same size, but without launches.

        The shortest time of all rounds counts. `request_us` is the time of a request with launches.
        """
        shortest_us = self._empties_us.get((problem, launches), math.inf)
        if shortest_us > EMPTY_SHARE * request_us:
            if self._gauge.child is None:
                self._gauge.open()
            behind = Batch(self._gauge, problem, launches, limit_s)
            times_us = [behind.launch(count=0).wall_us for _ in range(EMPTY_REQUESTS)]
            shortest_us = self._empties_us[problem, launches] = min(shortest_us, *times_us)
        return shortest_us
