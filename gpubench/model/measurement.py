"""The nouns of an outcome: the device, and what came out. Standard library only."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from gpubench.model.point import Point, Status
from gpubench.model.variant import Launch

LONGEST_REASON = 2000
"""Characters of why a point has no time."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """What runs the kernels, as far as figures depend on it."""

    backend: str
    name: str
    """As the driver or the operating system names it."""

    index: int = 0
    compute_capability: tuple[int, int] | None = None
    multiprocessors: int = 0
    """Streaming multiprocessors; cores on a CPU."""

    sm_clock_mhz: float | None = None
    """Highest clock of the multiprocessors, the nominal one for peaks."""

    memory_bandwidth_gbytes_per_s: float | None = None
    l2_bytes: int = 0
    """Last-level cache."""

    versions: dict[str, str] = field(default_factory=dict)
    """Of driver, CUDA, CuPy and the BLAS."""

    facts: dict[str, Any] = field(default_factory=dict)
    """Everything else `deviceinfo` shows."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What the compiler gave a kernel, per thread and per block."""

    registers: int
    local_bytes: int
    """Stack frame: spilled registers, and arrays the compiler could not keep in registers."""

    spill_bytes: int
    """Bytes of spill stores: registers that did not fit."""

    shared_bytes: int
    """Static shared memory."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """The samples of one point and round."""

    times_us: tuple[float, ...]
    """Time per launch of each sample in microseconds, in the order they were taken."""

    launches_per_sample: int
    stop_reason: str
    """Why no more were taken."""

    joules: float | None = None
    """Energy of a launch of the whole device; None where nothing says."""

    @property
    def median_us(self) -> float:
        """The median time per launch."""
        return statistics.median(self.times_us)

    @property
    def device_s(self) -> float:
        """Sum of all samples: seconds that the device worked for this series."""
        return sum(self.times_us) * self.launches_per_sample / 1e6


@dataclass(frozen=True, kw_only=True)
class Health:
    """The state of a device at a moment; None where nothing says."""

    sm_mhz: float | None = None
    """Multiprocessor clock during the samples since the last look: cycles over time, in-stream."""

    overhead_us: float | None = None
    """What each sample takes beyond its launches, as calibrated in this process and subtracted."""

    nvml_sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()
    """What holds the clock down, such as `power cap`."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """The host while a point was measured; None where the system does not say."""

    cores: int | None = None
    """Physical cores under the CPUs that the process may run on, as the system shows them."""

    mhz: float | None = None
    """Mean clock of the CPUs."""

    steal_percent: float | None = None
    """Time in which the hypervisor ran something else, of all CPUs' time."""

    other_load: float | None = None
    """CPUs that other processes kept busy."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What came of one point in one round."""

    point: Point
    status: Status
    reason: str = ""
    max_relative_error: float | None = None
    fingerprints: dict[int, int] = field(default_factory=dict)
    """Of right outputs, by the factors of their sets (`backends.rotation.result_factor`)."""

    series: Series | None = None
    resources: Resources | None = None
    launch: Launch | None = None
    algorithm: str = ""
    """Which of a library's algorithms ran, and how it was chosen; empty: not known."""

    notes: str = ""
    """What a call does beside computing, such as allocating memory."""

    threads: int | None = None
    """CPU threads that the kernel used; None on a GPU."""

    host: Host | None = None
    """Of points whose time depends on it."""

    before: Health = Health()
    after: Health = Health()
    started_utc: str = ""
    device_uuid: str = ""
    """Of the GPU that measured it."""

    slot: str = ""
    """Where that is in its host: its address on the PCI bus; of CPUs the name of the worker."""

    hostname: str = ""

    def __post_init__(self) -> None:
        """Cut what an exception says, which may be megabytes."""
        if len(self.reason) > LONGEST_REASON:
            object.__setattr__(self, "reason", f"{self.reason[: LONGEST_REASON - 1]}…")
