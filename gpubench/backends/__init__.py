"""What runs kernels. A backend has the methods of `Backend`; the runner knows no more of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gpubench.model import Device, Health, Launch, Point, Problem, Resources


class Kernel(Protocol):
    """A variant compiled and bound to operands: ready to run."""

    @property
    def resources(self) -> Resources | None:
        """What the compiler gave it; None where no compiler reports any."""

    @property
    def launch(self) -> Launch | None:
        """Its grid and block; None for library routines and CPU loops."""

    @property
    def max_launches(self) -> int:
        """Launches one sample may have."""


class Operands(Protocol):
    """A problem's arrays on the device, in as many sets as the cache policy needs."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The first set's inputs."""

    @property
    def output(self) -> Any:
        """The first set's output."""


class Backend(Protocol):
    """A device that holds arrays, runs kernels and times them."""

    @property
    def device(self) -> Device:
        """What it is."""

    @property
    def xp(self) -> Any:
        """Its array module: NumPy or CuPy."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Lines a user should read before the results."""

    def warm_up(self) -> None:
        """Bring the device to the clock it keeps under load."""

    def copy_gbytes_per_s(self) -> float:
        """Measured copy in the device's memory, bytes read plus bytes written.

        It is what operations bound by memory are held against.
        """

    def health(self) -> Health:
        """Clocks, temperature, power; with the clock of the samples since the last call."""

    def usable(self) -> bool:
        """Whether the device still answers: an illegal access ends it for this process."""

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Build what the points need ahead of measuring, telling `on_built` how many are done.

        What fails to compile raises when it is bound, not here.
        """

    def bytes_needed(self, problem: Problem, *, cold: bool) -> int:
        """Memory that `load` takes."""

    def bytes_free(self) -> int:
        """Memory that can be allocated now."""

    def load(self, problem: Problem, inputs: Sequence[Any], *, cold: bool) -> Any:
        """Put operands on the device; with `cold`, enough sets to outgrow the last-level cache."""

    def bind(self, point: Point, operands: Any, rows: int | None = None) -> Any:
        """The `Kernel` on the operands, or on no more than their first `rows` of M rows.

        Raises CompileError.
        """

    def run(self, kernel: Any) -> float | None:
        """Launch once on the first set and wait. Raises LaunchError.

        Returns its time in microseconds where that is as good as a sample of a slow launch.
        """

    def sample(self, kernel: Any, launches: int, count: int) -> list[float]:
        """Time `count` samples of `launches` launches each: microseconds per launch.

        Raises LaunchError.
        """
