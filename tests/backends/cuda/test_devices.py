"""The reason why no GPU is available, and the facts that are read about a GPU."""

import sys
from types import SimpleNamespace

import pytest
from cuda.bindings import driver

from gpubench.backends import passed_over
from gpubench.backends.cuda import devices
from gpubench.errors import DeviceUnavailableError


class FakeCudaError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}: something")
        self.status = status


def counting(answer: int | FakeCudaError) -> SimpleNamespace:
    """A CUDA runtime that returns this number of devices, or fails."""

    def count() -> int:
        if isinstance(answer, FakeCudaError):
            raise answer
        return answer

    return SimpleNamespace(
        getDeviceCount=count,
        CUDARuntimeError=FakeCudaError,
        runtimeGetVersion=lambda: 13000,
        driverGetVersion=lambda: 13010,
    )


def test_a_gpu_that_seems_to_be_there_is_reported_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for with_driver, cupy, on_the_bus, expected, message in (
        (False, False, False, True, "^no NVIDIA driver is loaded"),
        (False, False, True, False, "^no NVIDIA driver is loaded"),
        (False, True, False, False, "^CuPy is installed, but no NVIDIA driver is loaded"),
        (True, False, False, False, r"^CuPy is not installed: pip install '.*\[cuda13\]'"),
    ):
        monkeypatch.setattr(devices, "DRIVER_FILES", ("/",) if with_driver else ())
        monkeypatch.setattr(devices, "_cupy_is_installed", lambda cupy=cupy: cupy)
        monkeypatch.setattr(devices, "_nvidia_on_the_bus", lambda is_there=on_the_bus: is_there)
        with pytest.raises(DeviceUnavailableError, match=message) as caught:
            devices.cuda_devices()
        assert caught.value.expected == expected
        beginnings = [line.partition(": ")[0] for line in passed_over("auto")]
        assert beginnings == ([] if expected else ["cuda is not used"])
        assert passed_over("cpu") == ()


def test_a_runtime_without_devices_says_why() -> None:
    for answer, hint in (
        (FakeCudaError(35), "driver is too old for CuPy's CUDA 13.0"),
        (FakeCudaError(100), "check nvidia-smi and CUDA_VISIBLE_DEVICES"),
        (FakeCudaError(999), "CUDA does not start: cudaError 999"),
        (0, "CUDA_VISIBLE_DEVICES"),
    ):
        with pytest.raises(DeviceUnavailableError, match=hint):
            devices.describe_devices(counting(answer))


H200 = {
    "name": b"NVIDIA H200",
    "major": 9,
    "minor": 0,
    "multiProcessorCount": 132,
    "l2CacheSize": 62914560,
    "totalGlobalMem": 150 * 10**9,
    "totalConstMem": 65536,
    "sharedMemPerBlock": 49152,
    "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
    "regsPerBlock": 65536,
    "regsPerMultiprocessor": 65536,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiProcessor": 2048,
    "warpSize": 32,
    "ECCEnabled": 1,
    "uuid": b"",  # a zero byte ends the text in this older form
}


ATTRIBUTES = {"ClockRate": 1_980_000, "MemoryClockRate": 3_201_000, "GlobalMemoryBusWidth": 6144}


def h200s(count: int = 2) -> SimpleNamespace:
    """The CUDA runtime of a machine with `count` GPUs of type H200."""
    runtime = counting(count)
    runtime.getDeviceProperties = lambda _index: H200
    runtime.deviceGetAttribute = lambda name, _index: ATTRIBUTES[name]
    runtime.deviceGetPCIBusId = lambda index: f"0000:{0x1B + index:02X}:00.0"
    for name in ATTRIBUTES:
        setattr(runtime, f"cudaDevAttr{name}", name)
    return runtime


def test_a_device_is_described_in_our_units() -> None:
    _, device = devices.describe_devices(h200s(), lambda: {"cupy": "14.2.0"}, "GPU-{}".format)
    assert (device.backend, device.index, device.name) == ("cuda", 1, "NVIDIA H200")
    assert (device.compute_capability, device.multiprocessors) == ((9, 0), 132)
    assert device.sm_clock_mhz == 1980
    assert device.memory_bandwidth_gbytes_per_s == pytest.approx(4917, rel=1e-3)
    assert device.l2_bytes == 62914560
    assert device.facts["shared_memory_per_block_optin_bytes"] == 232448
    assert device.facts["uuid"] == "GPU-1"
    assert device.facts["ecc"] is True
    assert device.versions == {"cupy": "14.2.0", "cuda": "13.1", "cuda_runtime": "13.0"}


@pytest.mark.parametrize(
    ("status", "raw", "uuid"),
    [
        (0, bytes(range(16)), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (0, bytes(4) + bytes(range(1, 12)) + bytes(1), "GPU-00000000-0102-0304-0506-0708090a0b00"),
        (999, b"", ""),
    ],
)
def test_a_uuid_is_whole_though_it_has_zero_bytes(
    monkeypatch: pytest.MonkeyPatch, status: int, raw: bytes, uuid: str
) -> None:
    monkeypatch.setattr(driver, "cuInit", lambda _flags: None)
    monkeypatch.setattr(driver, "cuDeviceGet", lambda index: (0, index))
    answer = (status, SimpleNamespace(bytes=raw))
    monkeypatch.setattr(driver, "cuDeviceGetUuid", lambda _device: answer)
    assert devices._uuid(0) == uuid


def test_a_device_is_described_without_cuda_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.delitem(sys.modules, "gpubench.backends.cuda.driver", raising=False)
    assert devices._uuid(0) == ""
