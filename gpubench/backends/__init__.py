"""What runs kernels: a backend has the methods of `Backend`, and the runner uses only those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gpubench.model import Device, Health, Launch, Point, Problem, Resources


class Kernel(Protocol):
    """A variant compiled and bound to operands: ready to run."""

    @property
    def resources(self) -> Resources | None:
        """Registers and memory it uses; None where no compiler reports them."""

    @property
    def launch(self) -> Launch | None:
        """Its grid and block; None for library routines and CPU loops."""

    @property
    def max_launches(self) -> int:
        """Maximum launches in one sample."""


class Operands(Protocol):
    """A problem's arrays on the device, in as many sets as the cache state needs."""

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

        The reference for operations that are bound by memory.
        """

    def health(self) -> Health:
        """Clocks, temperature and power now, and the clock of the samples since the last call."""

    def usable(self) -> bool:
        """Whether the device still works: after an illegal access it does not in this process."""

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Build ahead what the points need; `on_built` gets the number of instances done.

        An instance that does not compile raises when it is bound, not here.
        """

    def bytes_needed(self, problem: Problem, *, cold: bool) -> int:
        """Memory that `load` takes."""

    def bytes_free(self) -> int:
        """Memory that can be allocated now."""

    def load(self, problem: Problem, inputs: Sequence[Any], *, cold: bool) -> Any:
        """Copy operands to the device; if `cold`, in sets that outgrow the last-level cache."""

    def bind(self, point: Point, operands: Any, rows: int | None = None) -> Any:
        """The `Kernel` on the operands, or on at most their first `rows` of M rows.

        Raises CompileError.
        """

    def run(self, kernel: Any) -> float | None:
        """Launch once on the first set and wait. Raises LaunchError.

        Returns its time in microseconds if that is as accurate as a sample of a slow launch.
        """

    def sample(self, kernel: Any, launches: int, count: int) -> list[float]:
        """Time `count` samples of `launches` launches each: microseconds per launch.

        Raises LaunchError.
        """
