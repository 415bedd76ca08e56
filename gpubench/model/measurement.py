"""Defines the types of a device and of a measurement's result."""

import statistics
from dataclasses import dataclass, field
from typing import Any

from gpubench.model.launch import Launch
from gpubench.model.point import Point, Status

CLOCKS_AGREE = 1.05
"""The parent's clock confirms a reported time if the parent's time is at most this multiple of the
reported time."""

LONGEST_REASON = 2000
"""Maximum number of characters in the text that states why a point has no time."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """The properties of the device that runs the kernels. Results depend on these properties."""

    backend: str
    name: str
    """The device's name, as the driver or the operating system reports it."""

    index: int = 0
    compute_capability: tuple[int, int] | None = None
    multiprocessors: int = 0
    """Number of streaming multiprocessors of a GPU, or number of CPUs that the process may use."""

    sm_clock_mhz: float | None = None
    """Highest clock of the multiprocessors. The device's peak rates are computed from this
    clock."""

    memory_bandwidth_gbytes_per_s: float | None = None
    l2_bytes: int = 0
    """Size of the last-level cache in bytes."""

    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the driver, CUDA, CuPy and the BLAS, by name."""

    facts: dict[str, Any] = field(default_factory=dict)
    """All other facts about the device, which `deviceinfo` shows."""

    @property
    def architecture(self) -> str:
        """The GPU's architecture as compilers name it, such as `sm_90`. Empty for a CPU."""
        return "sm_{}{}".format(*self.compute_capability) if self.compute_capability else ""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The registers and the memory that the compiler assigned to a kernel."""

    registers: int
    local_bytes: int
    """Size of a thread's stack frame in bytes. The frame holds spilled registers, and arrays that
    do not fit into registers."""

    spill_bytes: int
    """Number of bytes that a thread's spill stores write, for values that did not fit into
    registers."""

    shared_bytes: int
    """Size of a block's static shared memory in bytes."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """The samples that one round took of one point."""

    times_us: tuple[float, ...]
    """Time per launch in microseconds, with one value for each sample, in the order of
    measurement."""

    launches_per_sample: int
    stop_reason: str
    """The reason why sampling stopped."""

    joules: float | None = None
    """Energy that the whole device uses per launch. None means that the energy is not known."""

    @property
    def median_us(self) -> float:
        """The median of the samples' times per launch, in microseconds."""
        return statistics.median(self.times_us)

    @property
    def device_s(self) -> float:
        """The device time of this series in seconds, which is the time of all its samples."""
        return sum(self.times_us) * self.launches_per_sample / 1e6


@dataclass(frozen=True, kw_only=True)
class Health:
    """The state of a device at one moment. A field is None if its value is not known."""

    sm_mhz: float | None = None
    """Mean clock of a multiprocessor since the last reading. This clock is computed from cycles and
    times that were read in the stream."""

    overhead_us: float | None = None
    """Time that a sample takes in addition to its launches. This process calibrates the time, and
    subtracts it from each sample."""

    host_us: float | None = None
    """Median time that the CPU took to enqueue a launch, over all launches since the last
    reading."""

    nvml_sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()
    """Reasons why the clock is lower than the highest clock, such as `power cap`."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Times of fixed work on each part of a device, and the device's state after this work."""

    times_us: dict[str, float]
    health: Health
    configuration: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The outcome of measuring one point in one round."""

    point: Point
    status: Status
    reason: str = ""
    max_relative_error: float | None = None
    """The error that decides whether the output is right (`Compared.judged`)."""

    largest_error: float | None = None
    """The largest error of an element (`Compared.largest`), which includes the rounding of the sum
    to the result's type."""

    rms_error: float | None = None
    """Root mean square of the errors of all elements (`Compared.rms`)."""

    fingerprints: dict[int, int] = field(default_factory=dict)
    """Maps the content of an operand set (`rotation.content_of`) to the fingerprint of the right
    output."""

    series: Series | None = None
    resources: Resources | None = None
    launch: Launch | None = None
    algorithm: str = ""
    """The library's algorithm, and how the algorithm was chosen. Empty if the algorithm is not
    known."""

    code_hash: str = ""
    """Hash of the compiled code. Empty if gpubench did not compile the code."""

    kernels_run: str = ""
    """Names of the kernels that a launch runs, each with its count. Empty on a CPU, or if the names
    are not known."""

    notes: str = ""
    """What a call does besides computing, such as allocating memory."""

    first_call_s: float | None = None
    """Time in seconds of a function's first calls, in which the function may compile. None if the
    variant is not a function."""

    threads: int | None = None
    """Number of CPU threads that the kernel used. None on a GPU."""

    before: Health = Health()
    after: Health = Health()
    started_utc: str = ""
    """Time at which the round began, with microseconds. This time identifies a round that is
    received twice."""

    seed: int | None = None
    """Seed of the operands of a user's kernel, which is chosen when the round begins. None means
    that the operands have the job's seed."""

    clock_ratio: float | None = None
    """Time per launch on the parent's clock, divided by the reported time. None means that the
    parent did not examine the measurement."""

    is_walled: bool | None = None
    """Whether another process owned the results of a function on a GPU, and timed the function.
    None if no other process is needed, or if the operation makes its operands."""

    device_uuid: str = ""
    """UUID of the GPU that measured the point."""

    slot: str = ""
    """Address of the GPU on the host's PCI bus, or name of the CPU worker."""

    hostname: str = ""

    def __post_init__(self) -> None:
        """Cut the reason to `LONGEST_REASON`, because an exception's text may have megabytes."""
        if len(self.reason) > LONGEST_REASON:
            object.__setattr__(self, "reason", f"{self.reason[: LONGEST_REASON - 1]}…")


@dataclass(frozen=True, kw_only=True)
class PairedTimes:
    """Times of a kernel and of a library, measured in turns at the power limit."""

    times_us: tuple[float, ...]
    """Median time per launch of each visit to the kernel, in microseconds."""

    library_times_us: tuple[float, ...]
    """Median time per launch of each visit to the library, in microseconds. Each visit to the
    library is next to the visit to the kernel with the same index."""

    joules: float | None = None
    """Energy that the whole device uses for a launch of the kernel. None if the device does not
    count energy."""

    library_joules: float | None = None
    """Energy that the whole device uses for a launch of the library."""
