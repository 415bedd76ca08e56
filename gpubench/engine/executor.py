"""What a sweep hands its points to: an executor measures them, here or in a child process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from gpubench.backends import Backend
from gpubench.engine.runner import Runner
from gpubench.model import Device, Health, Measurement, Point, Timing


class Parts(NamedTuple):
    """What a device takes for fixed work on one part of it each, and its state after that."""

    times_us: dict[str, float]
    health: Health
    configuration: dict[str, Any]


class Executor(Protocol):
    """Measures points on one device. `begin` comes first, once a job."""

    @property
    def device(self) -> Device:
        """The device that measures."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Lines that a user should read before the results."""

    @property
    def spent_s(self) -> Mapping[str, float]:
        """Wall time of this sweep by phase."""

    def begin(self, timing: Timing, seed: int, verified: Sequence[Measurement] = ()) -> None:
        """Forget the last job: the next points are measured by this policy.

        Points with a measurement in `verified` need not be verified again.
        """

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Build what the points need, telling `on_built` how many are done."""

    def warm_up(self) -> None:
        """Bring the device to the clock it keeps under load."""

    def ceilings(self, dtypes: Sequence[str], kept: bool = False) -> dict[str, float]:
        """The device's highest rates, measured, as a `Backend` names them."""

    def parts(self) -> Parts:
        """Measure fixed work on one part of the device each."""

    def next_round(self) -> None:
        """Start afresh: where code and data lie in memory moves times, so no round shares it."""

    def measure(self, point: Point, wall_limit_s: float | None = None) -> Measurement:
        """Measure a point once; what goes wrong becomes its status and reason.

        `wall_limit_s` is the wall time that a budget leaves for it.
        """


class InProcess:
    """Measures in this process: a kernel that crashes it ends everything."""

    def __init__(self, backend: Backend) -> None:
        self.device, self.notices = backend.device, backend.notices
        self._backend = backend
        self._runner = Runner(backend, Timing(), 0)

    @property
    def spent_s(self) -> Mapping[str, float]:
        """As the runner counted it."""
        return self._runner.spent_s

    @property
    def usable(self) -> bool:
        """Whether the device can go on after what the last point did."""
        return self._backend.usable()

    def begin(self, timing: Timing, seed: int, _verified: Sequence[Measurement] = ()) -> None:
        """Start a runner; the backend keeps what it compiled."""
        self._runner = Runner(self._backend, timing, seed)

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Ahead of measuring, so that rounds are not held up."""
        with self._runner.phase("compiling"):
            self._backend.compile(points, on_built)

    def warm_up(self) -> None:
        """As the backend does it."""
        with self._runner.phase("warming up"):
            self._backend.warm_up()

    def ceilings(self, dtypes: Sequence[str], kept: bool = False) -> dict[str, float]:
        """As the backend measures them."""
        with self._runner.phase("warming up"):
            return self._backend.ceilings(dtypes, kept=kept)

    def parts(self) -> Parts:
        """As the backend measures them."""
        with self._runner.phase("sampling"):
            times_us = self._backend.parts()
        return Parts(times_us, self._backend.health(), self._backend.configuration())

    def next_round(self) -> None:
        """Nothing: this process is the only one."""

    def measure(
        self, point: Point, wall_limit_s: float | None = None, earlier: Measurement | None = None
    ) -> Measurement:
        """As the runner does it."""
        return self._runner.measure(point, wall_limit_s, earlier)
