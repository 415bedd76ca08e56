"""Measures points in this process. A `Worker` has a `Runner` in a child process."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from time import sleep

from gpubench.backends import Backend
from gpubench.engine.judge.verdict import WrongError
from gpubench.engine.judge.verify import compare_small
from gpubench.engine.measure.examiner import Examiner
from gpubench.engine.measure.pairs import paired
from gpubench.engine.measure.phases import Phases
from gpubench.engine.measure.visits import Visits
from gpubench.engine.operands.cache import OperandCache
from gpubench.errors import CompileError, DoesNotFitError, LaunchError, first_line
from gpubench.model import Measurement, PairedTimes, Parts, Point, Status, Timing


class Runner:
    """Measures points on a backend, in this process. Operands and verdicts are kept between rounds.

    A kernel that crashes ends the process. In each measurement, `on_ready` is called when the
    kernel has been compiled. If the kernel is a function, `on_ready` is called after the first call
    of the function.
    """

    def __init__(
        self,
        backend: Backend,
        timing: Timing | None = None,
        seed: int = 0,
        sleep: Callable[[float], None] = sleep,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._backend, self._sleep, self._on_ready = backend, sleep, on_ready
        self.device, self.notices = backend.device, backend.notices
        self.begin(timing or Timing(), seed)

    def begin(self, timing: Timing, seed: int, _verified: Sequence[Measurement] = ()) -> None:
        """Forget the previous job. The backend keeps the kernels that it compiled."""
        self._operand_cache = OperandCache(self._backend, seed)
        self._phase = Phases()
        self._visits = Visits(
            self._backend, self._operand_cache, timing, self._phase, self._sleep, self._on_ready
        )

    @property
    def examiner(self) -> Examiner:
        """The object that launches kernels at the parent's request."""
        return self._visits.examiner

    @property
    def spent_s(self) -> Mapping[str, float]:
        """Wall time, in seconds, that this process spent in each phase of the job."""
        return self._phase.spent_s

    @property
    def usable(self) -> bool:
        """Whether the device still works."""
        return self._backend.usable()

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Compile the kernels of the points, and the kernels that comparisons of results need."""
        with self._phase("compiling"), ThreadPoolExecutor(1) as compiler:
            compiled = compiler.submit(self._backend.compile, points, on_built)
            with suppress(DoesNotFitError, MemoryError):  # a point reports this when it is measured
                compare_small(self._operand_cache, self._backend.xp, points)
            compiled.result()

    def warm_up(self) -> None:
        """Bring the device to the clock rate that it keeps under load."""
        with self._phase("warming up"):
            self._backend.warm_up()

    def ceilings(self, dtypes: Sequence[str], _kept: bool = False) -> dict[str, float]:
        """Measure the device's highest rates."""
        with self._phase("warming up"):
            return self._backend.gauge.ceilings(dtypes)

    def parts(self) -> Parts:
        """Measure how long a fixed amount of work takes on each part of the device."""
        gauge = self._backend.gauge
        with self._phase("sampling"):
            times_us = gauge.parts()
        return Parts(times_us=times_us, health=gauge.health(), configuration=gauge.configuration())

    def empty_launch_us(self) -> dict[str, float]:
        """Measure how long a launch of an empty kernel takes, by each clock of the device."""
        with self._phase("sampling"):
            return self._backend.gauge.empty_launch_us()

    def next_round(self) -> None:
        """Do nothing, because all rounds are measured in this process."""

    def measure(
        self,
        point: Point,
        wall_limit_s: float | None = None,
        earlier: Measurement | None = None,
        seed: int | None = None,
    ) -> Measurement:
        """Measure a point once, and return the measurement, also if the point fails.

        The measurement's status and reason describe a failure. `wall_limit_s` is the wall time that
        a budget leaves for the point. Sampling stops after this time, but not before the minimum
        number of samples is taken. `earlier` is the point's measurement in another process, where
        the point was probed and verified. The timed outputs are also verified in this process.
        `seed` is the seed of the operands and probes, if this seed differs from the job's seed.
        """
        self._operand_cache.use_seed(seed)
        self.examiner.forget()
        started = datetime.now(UTC).isoformat(timespec="microseconds")
        blank = Measurement(point=point, status=Status.OK, started_utc=started, seed=seed)
        result = self._visits.visit(blank, wall_limit_s, earlier)
        if result.status == Status.WRONG and self._operand_cache.spoiled(point):
            # An earlier kernel may have overwritten the operands: try again on new operands.
            self._operand_cache.forget()
            result = self._visits.visit(blank, wall_limit_s, earlier)
            if result.status == Status.WRONG:
                self._operand_cache.forget()  # this kernel may have overwritten other operands, too
        return result

    def measure_pairs(self, point: Point, library: Point) -> PairedTimes | str:
        """Measure a kernel and a library in turns at the power limit (`measure.pairs`).

        The kernel and the library have the same problem. If the measurement fails, return the
        reason as text.
        """
        self._operand_cache.use_seed(None)
        try:
            operands = self._operand_cache.operands(point)
            if operands.policy.flush:
                return "flushing the cache would let the device cool: use --cache hot"
            kernel, other = (self._visits.right_kernel(each, operands) for each in (point, library))
            with self._phase("sampling"):
                return paired(kernel, other)
        except (WrongError, CompileError, LaunchError, DoesNotFitError) as error:
            return first_line(error)
