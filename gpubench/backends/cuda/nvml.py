"""Clocks, temperature, power and throttling of a GPU, from NVIDIA's management library."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

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
"""NVML's clock event reasons (nvml.h, nvmlClocksEventReason…): software and hardware thermal
slowdown have one name here, and so do hardware slowdown and power brake. Idle is not throttling."""

FRESH_S = 0.05
"""A reading serves for so long. It takes five calls of the driver, a millisecond each where other
processes ask it too; power is a mean over a second (nvml.h, nvmlDeviceGetPowerUsage)."""

MAX_NAMED = 3
"""Processes named in a notice."""


class Nvml:
    """One GPU's sensors. Raises OSError where NVML or its Python package is missing."""

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
        """The sensors, and the clock of the stream; None for what a GPU does not report."""
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
        """Energy of the whole GPU since the driver was loaded; None: it does not count it."""
        energy_mj = self._read(self._nvml.nvmlDeviceGetTotalEnergyConsumption)
        return None if energy_mj is None else energy_mj / 1e3

    def configuration(self) -> dict[str, Any]:
        """What may explain a GPU's speed; what it does not report is left out."""
        nvml = self._nvml
        aggregate = getattr(nvml, "NVML_AGGREGATE_ECC", 1)
        asked: dict[str, tuple[str, tuple[int, ...]]] = {
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
        found: dict[str, Any] = {}
        for name, (function, arguments) in asked.items():
            try:
                value = getattr(nvml, function)(self._handle, *arguments)
            except (nvml.NVMLError, AttributeError):  # not of this GPU, not of this NVML
                continue
            if name == "remapped_rows":
                corrected, uncorrected, pending, failed = value
                found |= {name: corrected + uncorrected}
                found |= {"remapping_pending": pending, "remapping_failed": failed}
            elif isinstance(value, list | tuple):  # current mode and the one after a reset
                found[name] = value[0]
            else:
                found[name] = value.decode() if isinstance(value, bytes) else value
        if "power_limit_mw" in found:
            found["power_limit_w"] = found.pop("power_limit_mw") / 1e3
        return found | {"neighbours": self.others()}

    def others(self) -> str:
        """The other processes that compute on this process's GPU; empty: none seen."""
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return ""
        ours = {os.getpid(), os.getppid()}  # the parent may have looked at the GPU, too
        others = [process.pid for process in running if process.pid not in ours]
        if len(others) == len(running):  # in a container PIDs differ: one of them is this process
            return f"{len(others) - 1} other processes" if len(others) > 1 else ""
        more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
        return ", ".join(f"{_name(pid)} ({pid})" for pid in others[:MAX_NAMED]) + more

    def _read(self, sensor: Callable[..., Any], *which: int) -> float | None:
        try:
            return float(sensor(self._handle, *which))
        except self._nvml.NVMLError:
            return None


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # of another container, or gone
        return "process"
