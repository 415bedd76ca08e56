"""The types of an outcome: a device, and what was measured on it. Standard library only."""

import statistics
from dataclasses import dataclass, field
from typing import Any

from gpubench.model.point import Point, Status
from gpubench.model.variant import Launch

CLOCKS_AGREE = 1.05
"""The parent's clock confirms a reported time if the parent's time is at most this multiple of the
reported time."""

LONGEST_REASON = 2000
"""Maximum number of characters of the reason why a point has no time."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """The device that runs the kernels: the properties on which results depend."""

    backend: str
    name: str
    """The device's name, as the driver or the operating system reports it."""

    index: int = 0
    compute_capability: tuple[int, int] | None = None
    multiprocessors: int = 0
    """Number of streaming multiprocessors, or of the CPUs that the process may use."""

    sm_clock_mhz: float | None = None
    """Highest clock of the multiprocessors, from which peaks are computed."""

    memory_bandwidth_gbytes_per_s: float | None = None
    l2_bytes: int = 0
    """Bytes of the last-level cache."""

    versions: dict[str, str] = field(default_factory=dict)
    """Versions of driver, CUDA, CuPy and the BLAS."""

    facts: dict[str, Any] = field(default_factory=dict)
    """All other facts that `deviceinfo` shows."""

    @property
    def architecture(self) -> str:
        """The name of a GPU's architecture for compilers, such as `sm_90`; empty for a CPU."""
        return "sm_{}{}".format(*self.compute_capability) if self.compute_capability else ""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources that the compiler gave a kernel, per thread and per block."""

    registers: int
    local_bytes: int
    """Bytes of the stack frame: spilled registers, and arrays that do not fit into registers."""

    spill_bytes: int
    """Bytes of spill stores, for registers that did not fit."""

    shared_bytes: int
    """Bytes of static shared memory."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """The samples of one point and round."""

    times_us: tuple[float, ...]
    """Time per launch of each sample in microseconds, in the order of measurement."""

    launches_per_sample: int
    stop_reason: str
    """Why sampling stopped."""

    joules: float | None = None
    """Energy of the whole device per launch. None: not known."""

    @property
    def median_us(self) -> float:
        """The median time per launch."""
        return statistics.median(self.times_us)

    @property
    def device_s(self) -> float:
        """Sum of all samples in seconds: the device time of this series."""
        return sum(self.times_us) * self.launches_per_sample / 1e6


@dataclass(frozen=True, kw_only=True)
class Health:
    """The state of a device at a moment. None: not known."""

    sm_mhz: float | None = None
    """Mean clock of a multiprocessor since the last reading, from cycles and times in the
    stream."""

    overhead_us: float | None = None
    """Time of a sample beyond the time of its launches, calibrated in this process and
    subtracted."""

    host_us: float | None = None
    """Median time that the CPU took to enqueue a launch, since the last reading."""

    nvml_sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()
    """The reasons for a lower clock, such as `power cap`."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Times of fixed work on each part of a device, and the device's state after this work."""

    times_us: dict[str, float]
    health: Health
    configuration: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The outcome of one point in one round."""

    point: Point
    status: Status
    reason: str = ""
    max_relative_error: float | None = None
    """The error that decides whether the output is right: `Compared.judged`."""

    largest_error: float | None = None
    """The largest error of an element (`Compared.largest`), which includes the rounding of the sum
    to the result's type."""

    rms_error: float | None = None
    """Root of the mean square of the errors of all elements: `Compared.rms`."""

    fingerprints: dict[int, int] = field(default_factory=dict)
    """Fingerprints of right outputs, by the content of the operand set (`rotation.content_of`)."""

    series: Series | None = None
    resources: Resources | None = None
    launch: Launch | None = None
    algorithm: str = ""
    """The library's algorithm, and how it was chosen. Empty: not known."""

    code_hash: str = ""
    """Hash of the compiled code. Empty if gpubench did not compile the code."""

    kernels_run: str = ""
    """Names of the kernels that a launch runs, with counts. Empty if unknown, or on a CPU."""

    notes: str = ""
    """What a call does besides computing, such as allocating memory."""

    first_call_s: float | None = None
    """Seconds of a function's first calls, in which the function may compile. The value is None if
    the variant is not a function."""

    threads: int | None = None
    """CPU threads that the kernel used. None on a GPU."""

    before: Health = Health()
    after: Health = Health()
    started_utc: str = ""
    """Start of the round, with microseconds. The time identifies a round that is received twice."""

    seed: int | None = None
    """Seed of the operands, chosen when this round of a user's kernel began. None: the operands
    have the job's seed."""

    clock_ratio: float | None = None
    """Time per launch by the parent's clock, divided by the reported time. None: not examined."""

    is_walled: bool | None = None
    """Whether another process owned the results of a function on a GPU, and timed the function.
    None if no other process is needed, or if the operation makes its operands."""

    device_uuid: str = ""
    """UUID of the GPU that measured the point."""

    slot: str = ""
    """The device's place in its host: its address on the PCI bus, or a CPU worker's name."""

    hostname: str = ""

    def __post_init__(self) -> None:
        """Cut the reason. An exception's text may have megabytes."""
        if len(self.reason) > LONGEST_REASON:
            object.__setattr__(self, "reason", f"{self.reason[: LONGEST_REASON - 1]}…")


@dataclass(frozen=True, kw_only=True)
class PairedTimes:
    """Times of a kernel and of a library, measured in turns at the power limit."""

    heated_s: float
    """Seconds of launches before the first pair, until clock and power were stationary."""

    times_us: tuple[float, ...]
    """Median time per launch of each visit to the kernel, in microseconds."""

    library_times_us: tuple[float, ...]
    """Times of the library's visits. Each visit to the library is next to the visit to the kernel
    with the same index."""

    joules: float | None = None
    """Energy that the whole device takes for a launch of the kernel; None if it is not counted."""

    library_joules: float | None = None
    """Energy that the whole device takes for a launch of the library."""
