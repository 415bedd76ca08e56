"""What a GPU can do and the state it is in: rates, fixed work, sensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cupy.cuda import runtime

from gpubench.backends.cuda.kernel import CudaTimers, faults
from gpubench.backends.cuda.nvml import Nvml
from gpubench.model import CORE_DTYPES, Device, Health


class CudaGauge:
    """Measures a GPU in its stream, and reads its sensors if NVML is available."""

    def __init__(self, device: Device, timers: CudaTimers, nvml: Nvml | None) -> None:
        self._driver = device.versions.get("driver")
        self._timers = timers
        self._nvml = nvml

    def ceilings(
        self,
        dtypes: Sequence[str] = CORE_DTYPES,
        *,
        kept: bool = False,  # noqa: ARG002 # measuring takes no time here
    ) -> dict[str, float]:
        """Measure the rate of a copy, and unless `dtypes` is empty the rates of all arithmetic."""
        stream = self._timers.stream
        with faults():
            stream.warm_up()
            rates: dict[str, float | None] = {
                "measured_copy_gbytes_per_s": stream.copy_gbytes_per_s()
            }
            if dtypes:
                rates["measured_float32_fma_gflops"] = stream.fma_gflops()
                rates |= {
                    f"measured_{dtype}_tensor_gflops": rate
                    for dtype, rate in stream.tensor_gflops().items()
                }
        return {name: rate for name, rate in rates.items() if rate}

    def parts(self) -> dict[str, float]:
        """Measure copies in device memory and over PCIe, and a chain of loads from memory."""
        stream = self._timers.stream
        with faults():
            return {
                "copy": stream.copy_us(),
                "latency": stream.latency_us(),
                "to device": stream.host_copy_us(runtime.memcpyHostToDevice),
                "from device": stream.host_copy_us(runtime.memcpyDeviceToHost),
            }

    def configuration(self) -> dict[str, Any]:
        """Return the driver's version, and what NVML reports."""
        return {"driver": self._driver, **(self._nvml.configuration() if self._nvml else {})}

    def health(self) -> Health:
        """Return NVML's readings, and the clock that was measured in the stream."""
        events = self._timers.events
        clock_mhz = events.take_clock_mhz()
        health = self._nvml.health(clock_mhz) if self._nvml else Health(sm_mhz=clock_mhz)
        return replace(health, overhead_us=events.overhead_us)
