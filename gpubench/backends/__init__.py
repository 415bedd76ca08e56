"""What runs kernels: a backend is a folder here, whose `__init__.py` declares it as `BACKEND`.

It has the methods of `Backend`, and the runner uses only those. Loading a declaration loads nothing
heavy: its functions import what they need.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpubench.backends.rotation import OperandSets
from gpubench.errors import DeviceUnavailableError, UsageError
from gpubench.model import (
    CORE_DTYPES,
    Device,
    Health,
    Launch,
    Point,
    Problem,
    Resources,
    Series,
    Timer,
)

AUTO = "auto"
"""The `--device` that takes the first backend with a device."""


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

    @property
    def algorithm(self) -> str:
        """Which of a library's algorithms it is, and how that was chosen; empty: not known."""

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Numbers of CPU threads to choose from, the first in use; empty on a GPU."""


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

    def ceilings(
        self, dtypes: Sequence[str] = CORE_DTYPES, *, kept: bool = False
    ) -> dict[str, float]:
        """The device's highest rates, measured, by name with unit.

        `measured_copy_gbytes_per_s` is of a copy in its memory, bytes read plus bytes written: the
        reference for operations that are bound by memory. `measured_<dtype>_fma_gflops` is of
        multiply-adds in registers, of these dtypes as far as the backend measures them. `kept`: the
        highest that it has seen on such a device will do. `measured_<dtype>_tensor_gflops` is of
        products on tensor cores.
        """

    def parts(self) -> dict[str, float]:
        """Microseconds of fixed work on one part of the device each, by its name, such as `copy`.

        As `gpubench fleet` compares devices by them. Raises LaunchError.
        """

    def configuration(self) -> dict[str, Any]:
        """Now, what may make it slower than others of its kind: power cap, ECC errors, PCIe link.

        Names with units; empty where nothing says.
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

    def load(self, problem: Problem, inputs: Sequence[Any], *, cold: bool) -> OperandSets:
        """Copy operands to the device; if `cold`, in sets that outgrow the last-level cache.

        The sets differ by their `operand_factors`.
        """

    def bind(self, point: Point, operands: Any, rows: int | None = None) -> Any:
        """The `Kernel` on the operands, or on at most their first `rows` of M rows.

        Raises CompileError.
        """

    def fingerprints(self, operands: Any) -> dict[int, int]:
        """A number for each set whose output launches wrote into: equal where the bits are.

        Raises LaunchError.
        """

    def run(self, kernel: Any, launches: int = 1) -> float | None:
        """Launch on the next sets and wait. Raises LaunchError.

        Returns microseconds per launch if that is as accurate as a sample of slow launches.
        """

    def watch(self, kernel: Any) -> str:
        """What a call does beside computing, such as allocating memory; it has run before.

        Raises LaunchError for a call that cannot be timed, since it waits for the device.
        """

    def sample(self, kernel: Any, launches: int, count: int) -> list[float]:
        """Time `count` samples of `launches` launches each: microseconds per launch.

        Raises LaunchError.
        """

    def sustain(self, kernel: Any, heat_s: float, timed_s: float) -> Series:
        """Launch without a pause, at first untimed.

        Raises LaunchError, and DoesNotFitError where launches are too short for it.
        """


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Typical costs on a backend, as measured: what a forecast rests on before anything was run."""

    start_s: float = 1.0
    """To start a measuring process, which each round does, and to warm up."""

    compile_s: float = 1.0
    """To compile a kernel, on all cores together."""

    gflops: Callable[[Device], float | None] = lambda _device: None
    """The rate of a kernel whose rate nobody knows; None where the device's peak is unknown."""


@dataclass(frozen=True, kw_only=True)
class BackendEntry:
    """What a backend declares."""

    name: str
    """As `--device` takes it, and as its variants name what they run on."""

    auto_order: int
    """`--device auto` takes the lowest that has a device."""

    timers: tuple[Timer, ...]
    """The timers it has; the first is the default."""

    blas: str
    """What tables call its BLAS: `cuBLAS`."""

    cost: Cost = Cost()
    """What a sweep costs beside its samples, to foresee how long it takes."""

    quick_size: int = 512
    """M, N and K of a sweep without `--sizes`: its default variants take less than half a minute
    there, and differ enough to see."""

    numbers: Callable[[], list[int]] | None = None
    """The numbers of its devices, for completion, so without loading anything; None: it has one."""

    devices: Callable[[int | None], list[Device]]
    """Its devices, or the one of a number. Raises DeviceUnavailableError saying what is missing."""

    open: Callable[[int, Timer], Backend]
    """The backend on the device of a number. Raises DeviceUnavailableError without the timer."""

    load: Callable[[], None] | None = None
    """Imports what `open` imports, in a process that waits for its turn; None where a process that
    starts would change the times of the one that measures."""

    def timer(self, asked: Timer) -> Timer:
        """The timer asked for, or the default one where it is missing."""
        return asked if asked in self.timers else self.timers[0]


def backends() -> dict[str, BackendEntry]:
    """Every backend by name, in the order of `--device auto`."""
    folders = [
        f"{__name__}.{found.name}" for found in pkgutil.iter_modules(__path__) if found.ispkg
    ]
    entries: list[BackendEntry] = [importlib.import_module(name).BACKEND for name in folders]
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.auto_order)}


def find_devices(name: str) -> tuple[list[Device], dict[str, DeviceUnavailableError]]:
    """The devices that `--device` names, and which backends have none for `auto`, each with why.

    Raises DeviceUnavailableError where a backend was asked for by name.
    """
    if name != AUTO:
        backend, _, number = name.partition(":")
        return backends()[backend].devices(int(number) if number else None), {}
    devices: list[Device] = []
    missing: dict[str, DeviceUnavailableError] = {}
    for entry in backends().values():
        try:
            devices += entry.devices(None)
        except DeviceUnavailableError as error:
            missing[entry.name] = error
    return devices, missing


def passed_over(name: str) -> tuple[str, ...]:
    """Why `auto` does not take a device that seems to be there, a line a backend."""
    if name != AUTO:
        return ()
    missing = find_devices(name)[1]
    return tuple(
        f"{backend} is not used: {error}"
        for backend, error in missing.items()
        if not error.expected
    )


def open_backend(name: str, timer: Timer = Timer.EVENTS) -> Backend:
    """The backend on the first device that `--device` names.

    Raises DeviceUnavailableError where the device or the timer asked for is missing.
    """
    device = find_devices(name)[0][0]
    entry = backends()[device.backend]
    if timer not in {Timer.EVENTS, *entry.timers}:  # events are the default of --timer
        having = [other.name for other in backends().values() if timer in other.timers]
        raise UsageError(
            f"--timer {timer} needs {' or '.join(having)}; {entry.name} is timed by "
            f"{' or '.join(entry.timers)}"
        )
    return entry.open(device.index, timer)


def device_label(device: Device) -> str:
    """How a heading calls a device beside its name: `cuda:0`, `CPU`."""
    numbered = backends()[device.backend].numbers
    return f"{device.backend}:{device.index}" if numbered else device.backend.upper()


def blas_name(backend: str) -> str:
    """What tables call the BLAS of a row's backend, which may be of another installation."""
    entry = backends().get(backend)
    return entry.blas if entry else "BLAS"
