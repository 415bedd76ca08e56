"""Sensors through a stand-in for NVIDIA's management library."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpubench.backends.cuda.nvml import FRESH_S, Nvml
from gpubench.model import Health


class FakeNvmlError(Exception):
    pass


def fake_nvml(reasons: int = 0, *, broken: tuple[str, ...] = ()) -> SimpleNamespace:
    """A stand-in for `pynvml` with one GPU. The GPU does not support the `broken` functions."""

    def answer(name: str, value: Any) -> Any:
        def call(*_: Any) -> Any:
            if name in broken:
                raise FakeNvmlError("Not Supported")
            return value

        return call

    clocks = {1: 1755, 2: 3201}

    def clock_info(_handle: object, kind: int) -> int:
        return clocks[kind]

    return SimpleNamespace(
        NVMLError=FakeNvmlError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=answer("nvmlInit", None),
        nvmlDeviceGetHandleByUUID=answer("nvmlDeviceGetHandleByUUID", "handle"),
        nvmlDeviceGetPowerUsage=answer("nvmlDeviceGetPowerUsage", 345_678),
        nvmlDeviceGetTotalEnergyConsumption=answer("energy", 12_345),
        nvmlDeviceGetTemperature=answer("nvmlDeviceGetTemperature", 61),
        nvmlDeviceGetCurrentClocksThrottleReasons=answer("reasons", reasons),
        nvmlDeviceGetClockInfo=clock_info,
    )


def computing(*pids: int) -> SimpleNamespace:
    """A stand-in for `pynvml` with a GPU on which these processes compute."""
    nvml = fake_nvml()
    running = [SimpleNamespace(pid=pid) for pid in pids]
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda _handle: running
    return nvml


def test_other_processes_on_the_gpu_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, parent = 2**28, 2**29
    monkeypatch.setattr("os.getpid", lambda: ours)  # in a container, pytest may have PID 1
    monkeypatch.setattr("os.getppid", lambda: parent)
    first = Path("/proc/1/comm").read_text().strip()
    for pids, named in (
        ((), ""),
        ((ours, parent), ""),
        ((ours, parent, 1), f"{first} (1)"),
        ((ours, 2**30), "process (1073741824)"),
        ((2**30,), ""),  # this process, which has another PID in a container
        ((2**30, 2**30 + 1), "1 other process"),
        ((2**30, 2**30 + 1, 2**30 + 2), "2 other processes"),
        ((ours, *range(2**30, 2**30 + 5)), " and 2 more"),
    ):
        monkeypatch.setitem(sys.modules, "pynvml", computing(*pids))
        others = Nvml("GPU-1").others()
        assert others.endswith(named)
        assert bool(others) == bool(named)


def test_processes_of_one_command_are_no_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    child = "python3\0-P\0-c\0from gpubench.process.warden import watch; watch()\0"
    lines = {
        1: "bash\0/home/gpubench/run.sh\0",
        10: "python3\0/usr/bin/gpubench\0sweep\0",
        11: child,
        12: child,
        13: child,
    }
    parents = {10: 1, 11: 10, 12: 10, 13: 12}
    files = {f"/proc/{pid}/cmdline": line for pid, line in lines.items()}
    files |= {f"/proc/{pid}/status": f"Name:\tx\nPPid:\t{parents[pid]}\n" for pid in parents}
    files |= {f"/proc/{pid}/comm": line.partition("\0")[0] for pid, line in lines.items()}
    monkeypatch.setattr("os.getpid", lambda: 11)
    monkeypatch.setattr(
        "gpubench.backends.cuda.nvml.read_text", lambda path: files.get(str(path), "")
    )
    monkeypatch.setitem(sys.modules, "pynvml", computing(10, 11, 12, 13))
    assert not Nvml("GPU-1").others()
    files["/proc/12/status"] = "Name:\tx\nPPid:\t1\n"  # another command of this shell
    assert Nvml("GPU-1").others() == "python3 (12), python3 (13)"


def health(monkeypatch: pytest.MonkeyPatch, nvml: SimpleNamespace) -> Health:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return Nvml("GPU-1").health(1750.0)


def test_health_is_in_the_units_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert health(monkeypatch, fake_nvml()) == Health(
        sm_mhz=1750.0,
        nvml_sm_mhz=1755,
        memory_mhz=3201,
        temperature_c=61,
        power_w=345.678,
        throttle=(),
    )


def test_sensors_are_read_again_only_once_a_reading_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, watts = fake_nvml(), iter((100_000, 200_000))
    nvml.nvmlDeviceGetPowerUsage = lambda _handle: next(watts)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    gpu, now_s = Nvml("GPU-1"), 1000.0
    monkeypatch.setattr("gpubench.backends.cuda.nvml.monotonic", lambda: now_s)
    assert gpu.health(1750.0).power_w == 100.0
    again = gpu.health(1400.0)
    assert (again.sm_mhz, again.power_w) == (1400.0, 100.0)
    now_s += 2 * FRESH_S
    assert gpu.health(None) == replace(again, sm_mhz=None, power_w=200.0)


def test_energy_is_in_joules_where_it_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for broken, joules in (((), 12.345), (("energy",), None)):
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(broken=broken))
        assert Nvml("GPU-1").energy_j() == joules


def test_what_a_gpu_does_not_report_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = fake_nvml(
        0x4, broken=("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature", "reasons")
    )
    readings = health(monkeypatch, lacking)
    assert (readings.power_w, readings.temperature_c, readings.throttle) == (None, None, ())
    assert readings.nvml_sm_mhz == 1755


def test_each_reason_to_throttle_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for reasons, named in (
        (0x1, ()),  # the GPU is idle, so nothing throttles it
        (0x4, ("power cap",)),
        (0x20 | 0x40, ("thermal slowdown",)),
        (0x4 | 0x8 | 0x80, ("power cap", "hardware slowdown")),
    ):
        assert health(monkeypatch, fake_nvml(reasons)).throttle == named


def test_without_nvml_there_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(OSError, match="nvidia-ml-py is not installed"):
        Nvml("GPU-1")
    for broken in ("nvmlInit", "nvmlDeviceGetHandleByUUID"):
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(broken=(broken,)))
        with pytest.raises(OSError, match="NVML: Not Supported"):
            Nvml("GPU-1")


def test_what_may_explain_a_gpus_speed_is_read_if_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = computing(os.getpid())
    answers: dict[str, Any] = {
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetCurrPcieLinkGeneration": 5,
        "nvmlDeviceGetVbiosVersion": b"96.00.9F",
        "nvmlDeviceGetMigMode": [0, 1],
        "nvmlDeviceGetRemappedRows": [1, 2, 0, 0],
    }
    for name, value in answers.items():
        setattr(nvml, name, lambda *_, value=value: value)

    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    configuration = Nvml("GPU-1").configuration()
    assert configuration == {
        "power_limit_w": 700.0,
        "max_sm_mhz": 1980,
        "pcie_generation": 5,
        "vbios": "96.00.9F",
        "mig_mode": 0,
        "remapped_rows": 3,
        "remapping_pending": 0,
        "remapping_failed": 0,
        "neighbours": "",
    }
