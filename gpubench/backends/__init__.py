"""The backends, which run kernels on devices.

Each backend is a directory whose `__init__.py` declares `BACKEND`. A `Backend` has operands and
binds kernels to them, a `Kernel` runs and is timed, and a `Gauge` measures the device. The import
of a declaration is quick, because the functions of the declaration import other packages only when
they are called.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Protocol, Self

from gpubench.backends.rotation import OperandSets
from gpubench.errors import DeviceUnavailableError, UsageError
from gpubench.model import (
    CORE_DTYPES,
    Device,
    Health,
    Launch,
    Launches,
    Point,
    Problem,
    Resources,
    Series,
    Timer,
)

AUTO = "auto"  # the value of `--device` that selects the first backend with a device


@dataclass(frozen=True, kw_only=True)
class Routine:
    """The properties that a row states about a kernel, a library routine or a function."""

    call: Callable[..., None] | None = None
    """The function that a `CallVariant` builds. None for a kernel that gpubench compiles."""

    compiled: Resources | None = None  # registers and memory that the compiler reported
    note: str = ""  # the compiler that was used instead of NVRTC, or the headers that were replaced
    code_hash: str = ""
    """Hash of the compiled code. Empty for a library, and for a function that compiles its own
    kernels."""

    launch: Launch | None = None  # grid and block of a compiled kernel
    chosen: str = ""  # the algorithm that was chosen in a library, and how it was chosen

    @property
    def resources(self) -> Resources | None:
        """The resources that the compiler reported, or that the function reports after a run."""
        return self.compiled or getattr(self.call, "resources", None)

    @property
    def algorithm(self) -> str:
        """The algorithm that was chosen, or that the called function reports after a run."""
        return self.chosen or str(getattr(self.call, "algorithm", ""))


class Kernel(Protocol):
    """A compiled kernel or a library routine, bound to operands. It can be run and timed.

    Each launch uses the next set of operands. All methods that launch raise LaunchError.
    """

    @property
    def routine(self) -> Routine:
        """The properties of the kernel that are written into a row."""

    @property
    def min_launches(self) -> int:
        """Minimum number of launches in a sample. A time may be predicted from fewer launches."""

    @property
    def max_launches(self) -> int:
        """Maximum number of launches in one sample."""

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Numbers of CPU threads to choose from. The current number is first. Empty on a GPU."""

    def on_threads(self, count: int) -> Self:
        """Return the kernel with another number of CPU threads."""

    def run(self, launches: int = 1) -> float | None:
        """Launch on the next sets of operands, and wait until the launches have ended.

        Return microseconds per launch if this time is accurate enough to be a sample of slow
        launches. Otherwise, return None.
        """

    def watch(self) -> str:
        """Return a note on what a call does besides computing, such as allocating memory.

        The note is empty if the call only computes. The kernel must have run before. Raises
        LaunchError for a call that waits for the device, because such a call cannot be timed.
        """

    def kernels_run(self) -> str:
        """Return the names of the kernels that a launch runs, and how often it runs each kernel.

        The text is empty if the names are unknown. The kernel must have run before. The launch may
        be captured without being run, so the output of a set may be unchanged.
        """

    def sample(self, launches: int, count: int) -> list[float]:
        """Time `count` samples of `launches` launches each, and return microseconds per launch."""

    def sustain(self, heat_s: float, timed_s: float) -> Series:
        """Launch without a pause for `heat_s` seconds, then for `timed_s` seconds.

        Only the launches of the second period are timed. Raises DoesNotFitError if the launches are
        too short to be enqueued without a pause.
        """


class Ipc(Protocol):
    """Shares memory of a device between two processes."""

    def export(self, size: int) -> tuple[bytes, Any]:
        """Allocate memory that other processes can open.

        Return a handle for the other processes, and the memory as an array of bytes. Raises
        LaunchError.
        """

    def open(self, handle: bytes, size: int) -> Any:
        """Return the memory that another process exported, as bytes. Raises LaunchError."""


class Gauge(Protocol):
    """Measures a device's rates and its state, independently of the kernels to compare."""

    def ceilings(self, dtypes: Sequence[str] = CORE_DTYPES) -> dict[str, float]:
        """Measure the device's highest rates, and return them by name. Each name has its unit.

        - `measured_copy_gbytes_per_s`: a copy in the device's memory, bytes read plus bytes
          written. Operations that are bound by memory are compared with this rate.
        - `measured_read_gbytes_per_s`: loads from a GPU's memory, without a store.
        - `measured_<dtype>_fma_gflops`: multiply-adds in registers, for the `dtypes` that the
          backend can measure.
        - `measured_<dtype>_tensor_gflops`: products on tensor cores.
        """

    def parts(self) -> dict[str, float]:
        """Time fixed work on each part of the device. Return microseconds by name, such as `copy`.

        `gpubench fleet` compares devices by these times. Raises LaunchError.
        """

    def empty_launch_us(self) -> dict[str, float]:
        """Time a launch of an empty kernel. Return microseconds by the name of the clock.

        `device` and `events` are times per launch in a stream, and `cupti` is the execution time of
        the kernel. The dictionary is empty on a CPU. Raises LaunchError, or DeviceUnavailableError
        if CUPTI is missing.
        """

    def configuration(self) -> dict[str, Any]:
        """Return facts that may explain a slow device, such as its power cap or ECC errors.

        The names of the facts contain the unit. The dictionary is empty if the system reports no
        facts.
        """

    def health(self) -> Health:
        """Return the present clocks, temperature and power, and the clock during recent samples."""


class Backend(Protocol):
    """A device that holds operands in memory, and binds kernels to the operands."""

    device: Device
    xp: ModuleType  # the array module: NumPy or CuPy
    notices: tuple[str, ...]  # lines that a user should read before the results

    @property
    def gauge(self) -> Gauge:
        """The gauge, which measures the rates and the state of the device."""

    @property
    def ipc(self) -> Ipc | None:
        """Shares the device's memory between processes. None if processes share files instead."""

    def warm_up(self) -> None:
        """Bring the device to the clock that it keeps under load."""

    def reset_caches(self) -> None:
        """Undo what an earlier kernel set for the caches, such as lines pinned in the L2 cache."""

    def usable(self) -> bool:
        """Return whether the device still works. An illegal access makes the device unusable."""

    def compile(self, points: Sequence[Point], on_built: Callable[[int], None]) -> None:
        """Compile the kernels of the points.

        `on_built` gets the number of instances compiled so far. If an instance does not compile,
        only `bind` raises the error.
        """

    def bytes_needed(self, problem: Problem, *, cold: bool, one_set: bool = False) -> int:
        """Return the number of bytes that `load` allocates.

        With `one_set`, the number includes the bytes of `FixedArrays`.
        """

    def bytes_free(self) -> int:
        """Return the number of bytes that can be allocated now."""

    def load(
        self, problem: Problem, inputs: Sequence[Any], *, cold: bool, one_set: bool = False
    ) -> OperandSets:
        """Copy operands to the device.

        If `cold`, there are several sets of operands, which together exceed the cache. The sets
        differ by their `operand_factors`. With `one_set`, there is one set, and the cache is
        flushed instead.
        """

    def bind(self, point: Point, operands: OperandSets, rows: int | None = None) -> Kernel:
        """Return the point's kernel, bound to the operands.

        With `rows`, the kernel takes at most the first `rows` rows of the operands. Raises
        CompileError.
        """

    def hold(
        self, memory: Any, values: Any, kernel: Any, launches: int, *, in_queue: bool
    ) -> Callable[[int], None] | None:
        """Prepare launches on operands in `memory` that no launch has used yet.

        Return a function that takes a seed, fills the memory by `new_elements`, launches the
        kernel, and waits. With `in_queue`, the launches are in the GPU's queue before the seed is
        written. Return None if the queue has no room for the launches. If `kernel` is None, nothing
        is launched. Raises LaunchError.
        """


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Typical, measured costs of a sweep on a backend, for forecasts until a kernel has run."""

    start_s: float = 1.0  # time to start a measuring process, once per round, and to warm up
    compile_s: float = 1.0  # mean time for each kernel if all cores compile kernels
    gflops: Callable[[Device], float | None] = lambda _device: None
    """Function that returns the rate to assume for a kernel that was not measured. The rate is None
    if the device's peak is unknown."""


@dataclass(frozen=True, kw_only=True)
class BackendEntry:
    """The declaration of a backend."""

    name: str  # the name in `--device` and in the descriptors of variants
    auto_order: int  # `--device auto` takes the lowest number among backends with a device
    timers: tuple[Timer, ...]  # the backend's timers, the default timer first
    launches: tuple[Launches, ...] = (Launches.ALONE,)  # kinds of launches that can be timed
    cost: Cost = Cost()  # typical costs of a sweep in addition to its samples, for forecasts
    quick_size: int = 512
    """M, N and K of a product in a sweep without `--sizes`. At this size, the default variants take
    less than half a minute, and their times differ visibly."""

    host_arrays: bool = False
    """Whether the backend's kernels take NumPy arrays, so that any process can call them."""

    is_numbered: bool = False  # whether there may be several devices: `cuda:0` and `cuda:1`
    devices: Callable[[int | None], list[Device]]
    """Returns all devices of the backend, or the device with the given number. Raises
    DeviceUnavailableError if there is no such device. The message names what is missing."""

    open: Callable[[int, Timer], Backend]
    """Opens the device with the given number. Raises DeviceUnavailableError if the timer is
    missing."""

    load: Callable[[], None] = lambda: None
    """Imports the modules that `open` needs. A process that starts ahead of its use calls this
    function, to save time later."""

    def timer(self, requested: Timer) -> Timer:
        """Return the requested timer if the backend has it, or else the backend's default timer."""
        return requested if requested in self.timers else self.timers[0]


def backends() -> dict[str, BackendEntry]:
    """Return every backend by name, in the order of `--device auto`."""
    packages = [f"{__name__}.{module.name}" for module in iter_modules(__path__) if module.ispkg]
    entries: list[BackendEntry] = [importlib.import_module(name).BACKEND for name in packages]
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.auto_order)}


def find_devices(name: str) -> tuple[list[Device], dict[str, DeviceUnavailableError]]:
    """Return the devices that `--device` names.

    For `auto`, the second value has the error of each backend without a device. Raises
    DeviceUnavailableError if `name` is the name of a backend without a device.
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


def first_device(name: str, timer: Timer = Timer.EVENTS) -> Device:
    """Return the first device that `--device` names.

    Raises DeviceUnavailableError if the device is missing, and UsageError if the backend lacks the
    timer.
    """
    device = find_devices(name)[0][0]
    entry = backends()[device.backend]
    if timer not in {Timer.EVENTS, *entry.timers}:  # events are the default of --timer
        names = [other.name for other in backends().values() if timer in other.timers]
        raise UsageError(
            f"--timer {timer} is only for {' or '.join(names)}; {entry.name} is timed by "
            f"{' or '.join(entry.timers)}"
        )
    return device


def passed_over(name: str) -> tuple[str, ...]:
    """Return a line for each backend that `auto` skips although its device seems to exist."""
    if name != AUTO:
        return ()
    missing = find_devices(name)[1]
    return tuple(
        f"{backend} is not used: {error}"
        for backend, error in missing.items()
        if not error.expected
    )


def open_backend(name: str, timer: Timer = Timer.EVENTS) -> Backend:
    """Open the first device that `--device` names.

    Raises DeviceUnavailableError if the device is missing, and UsageError if the backend lacks the
    timer.
    """
    device = first_device(name, timer)
    return backends()[device.backend].open(device.index, timer)


def device_label(device: Device) -> str:
    """Return the label that headings show beside a device's name, such as `cuda:0` or `CPU`."""
    numbered = backends()[device.backend].is_numbered
    return f"{device.backend}:{device.index}" if numbered else device.backend.upper()
