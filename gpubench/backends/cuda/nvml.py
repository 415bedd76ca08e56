"""Reads clocks, temperature, power and throttling of a GPU from NVIDIA's library NVML."""

import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Any

from gpubench.hardware.host import read_text
from gpubench.model import Health

THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown",
    0x40: "thermal slowdown",
    0x80: "hardware slowdown",
    0x2: "application clocks",
}
"""Names of NVML's clock event reasons (nvml.h, nvmlClocksEventReason…), by their bit. Software and
hardware thermal slowdown share one name here. Hardware slowdown and power brake share another name.
The reason "idle" is left out, because it is not throttling."""

FRESH_S = 0.05
"""Time for which a reading is reused. A reading takes five calls of the driver. A call takes a
millisecond if other processes call the driver, too. Power is a mean over a second anyway (nvml.h,
nvmlDeviceGetPowerUsage)."""

_PARENT = re.compile(r"^PPid:\t(\d+)$", re.MULTILINE)

_OF_GPUBENCH = re.compile(r"(?:^|[\0/])gpubench\0|gpubench\.process")
"""Pattern of the arguments of a gpubench process: the command, or a child process."""

MAX_NAMED = 3  # maximum number of processes that a notice names


def _is_ours(pid: int) -> bool:
    """Return whether a process is this command of gpubench, or was started by this command."""
    return pid in {os.getpid(), os.getppid()} or _command_of(pid) == _command_of(os.getpid())


def _command_of(pid: int) -> int:
    """Return the oldest process of gpubench among a process and its ancestors."""
    while parent := _PARENT.search(read_text(f"/proc/{pid}/status")):
        if not _OF_GPUBENCH.search(read_text(f"/proc/{parent[1]}/cmdline")):
            break
        pid = int(parent[1])
    return pid


class Nvml:
    """The sensors of a GPU. Raises OSError if NVML or its Python package is missing."""

    def __init__(self, uuid: str) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise OSError("nvidia-ml-py is not installed") from error
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as error:
            raise OSError(f"NVML: {error}") from error
        self._latest, self._read_s = Health(), -math.inf

    def health(self, sm_mhz: float | None) -> Health:
        """Return the readings of the sensors. `sm_mhz` is the clock of the multiprocessors.

        A reading is None if the GPU does not report it.
        """
        if monotonic() - self._read_s > FRESH_S:
            self._latest, self._read_s = self._sensors(), monotonic()
        return replace(self._latest, sm_mhz=sm_mhz)

    def _sensors(self) -> Health:
        nvml = self._nvml
        power_mw = self._read(nvml.nvmlDeviceGetPowerUsage)
        reasons = self._read(nvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        return Health(
            nvml_sm_mhz=self._read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            memory_mhz=self._read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            temperature_c=self._read(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power_mw is None else power_mw / 1e3,
            throttle=tuple(
                dict.fromkeys(name for bit, name in THROTTLES.items() if int(reasons) & bit)
            ),
        )

    def energy_j(self) -> float | None:
        """Return the joules that the GPU used since the driver was loaded, or None if unknown."""
        energy_mj = self._read(self._nvml.nvmlDeviceGetTotalEnergyConsumption)
        return None if energy_mj is None else energy_mj / 1e3

    def configuration(self) -> dict[str, Any]:
        """Return the facts that the GPU reports and that may explain its speed."""
        nvml = self._nvml
        aggregate = getattr(nvml, "NVML_AGGREGATE_ECC", 1)
        queries: dict[str, tuple[str, tuple[int, ...]]] = {
            "power_limit_mw": ("nvmlDeviceGetEnforcedPowerLimit", ()),
            "max_sm_mhz": ("nvmlDeviceGetMaxClockInfo", (nvml.NVML_CLOCK_SM,)),
            "pcie_generation": ("nvmlDeviceGetCurrPcieLinkGeneration", ()),
            "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth", ()),
            "vbios": ("nvmlDeviceGetVbiosVersion", ()),
            "persistence_mode": ("nvmlDeviceGetPersistenceMode", ()),
            "ecc_mode": ("nvmlDeviceGetEccMode", ()),
            "mig_mode": ("nvmlDeviceGetMigMode", ()),
            "ecc_errors_corrected": ("nvmlDeviceGetTotalEccErrors", (0, aggregate)),
            "ecc_errors_uncorrected": ("nvmlDeviceGetTotalEccErrors", (1, aggregate)),
            "remapped_rows": ("nvmlDeviceGetRemappedRows", ()),
        }
        facts: dict[str, Any] = {}
        for name, (function, arguments) in queries.items():
            try:
                value = getattr(nvml, function)(self._handle, *arguments)
            except (nvml.NVMLError, AttributeError):  # this GPU or this NVML does not report it
                continue
            if name == "remapped_rows":
                corrected, uncorrected, pending, failed = value
                facts |= {name: corrected + uncorrected}
                facts |= {"remapping_pending": pending, "remapping_failed": failed}
            elif isinstance(value, list | tuple):  # the current mode, and the mode after a reset
                facts[name] = value[0]
            else:
                facts[name] = value.decode() if isinstance(value, bytes) else value
        if "power_limit_mw" in facts:
            facts["power_limit_w"] = facts.pop("power_limit_mw") / 1e3
        return facts | {"neighbours": self.others()}

    def others(self) -> str:
        """Return the names of other processes on this GPU, or an empty text."""
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return ""
        strangers = [process.pid for process in running if not _is_ours(process.pid)]
        if len(strangers) == len(running):  # other PIDs in a container; one is ours
            count = len(strangers) - 1
            return f"{count} other process{'' if count == 1 else 'es'}" if count > 0 else ""
        more = f" and {len(strangers) - MAX_NAMED} more" if len(strangers) > MAX_NAMED else ""
        # A process in another container, or an ended process, has no name here.
        names = {pid: read_text(f"/proc/{pid}/comm") or "process" for pid in strangers[:MAX_NAMED]}
        return ", ".join(f"{name} ({pid})" for pid, name in names.items()) + more

    def _read(self, sensor: Callable[..., Any], *which: int) -> float | None:
        try:
            return float(sensor(self._handle, *which))
        except self._nvml.NVMLError:
            return None
