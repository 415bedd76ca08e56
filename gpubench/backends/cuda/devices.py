"""The machine's GPUs: their properties, or what is missing to have any."""

from __future__ import annotations

import re
import uuid
from functools import cache
from pathlib import Path
from typing import Any

from gpubench.errors import DeviceUnavailableError
from gpubench.model import Device

INSTALL = "pip install 'gpubench[cuda13]' (or cuda12, as the driver needs)"

ERROR_INSUFFICIENT_DRIVER = 35
ERROR_NO_DEVICE = 100


def cuda_devices() -> list[Device]:
    """Every CUDA device. Raises DeviceUnavailableError saying what is missing."""
    runtime = _runtime()
    return [_describe(runtime, index) for index in range(_count(runtime))]


def cuda_device(index: int) -> Device:
    """One device. Raises DeviceUnavailableError if there is none of this index."""
    devices = cuda_devices()
    if index >= len(devices):
        raise DeviceUnavailableError(
            f"--device cuda:{index}: this machine has {len(devices)} CUDA device(s), "
            f"cuda:0 to cuda:{len(devices) - 1}"
        )
    return devices[index]


def _runtime() -> Any:
    if not (Path("/proc/driver/nvidia").exists() or Path("/dev/nvidiactl").exists()) and not _wsl():
        raise DeviceUnavailableError(
            "no NVIDIA driver is loaded: CUDA needs an NVIDIA GPU and its driver; "
            "--device cpu works without"
        )
    try:
        from cupy.cuda import runtime
    except ImportError as error:
        problem = "is not installed" if error.name == "cupy" else f"cannot be loaded ({error})"
        raise DeviceUnavailableError(f"CuPy {problem}: {INSTALL}") from error
    return runtime


def _wsl() -> bool:
    return Path("/dev/dxg").exists()


def _count(runtime: Any) -> int:
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        if error.status == ERROR_INSUFFICIENT_DRIVER:
            message = (
                f"the NVIDIA driver is too old for CuPy's CUDA {_version(runtime_version())}: "
                "update the driver, or pip install 'gpubench[cuda12]'"
            )
        elif error.status == ERROR_NO_DEVICE:
            message = "no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES"
        else:
            message = f"CUDA does not start: {error}"
        raise DeviceUnavailableError(message) from error
    if not count:
        raise DeviceUnavailableError("no CUDA device is visible: check CUDA_VISIBLE_DEVICES")
    return int(count)


def runtime_version() -> int:
    """Of the CUDA runtime CuPy uses: 13000 is 13.0."""
    from cupy.cuda import runtime

    return int(runtime.runtimeGetVersion())


def _describe(runtime: Any, index: int) -> Device:
    properties = runtime.getDeviceProperties(index)

    def attribute(name: str) -> int:
        return int(runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{name}"), index))

    # From attributes: CUDA 13 dropped the clocks from the property structure.
    sm_clock_mhz = attribute("ClockRate") / 1e3
    memory_clock_mhz = attribute("MemoryClockRate") / 1e3
    bus_bits = attribute("GlobalMemoryBusWidth")
    return Device(
        backend="cuda",
        name=properties["name"].decode(),
        index=index,
        compute_capability=(properties["major"], properties["minor"]),
        multiprocessors=properties["multiProcessorCount"],
        sm_clock_mhz=sm_clock_mhz,
        # Two transfers a clock.
        memory_bandwidth_gbytes_per_s=2 * memory_clock_mhz * 1e6 * bus_bits / 8 / 1e9,
        l2_bytes=properties["l2CacheSize"],
        versions=_versions(runtime),
        facts={
            "memory_clock_mhz": memory_clock_mhz,
            "memory_bus_bits": bus_bits,
            "global_memory_bytes": properties["totalGlobalMem"],
            "constant_memory_bytes": properties["totalConstMem"],
            "shared_memory_per_block_bytes": properties["sharedMemPerBlock"],
            "shared_memory_per_block_optin_bytes": properties["sharedMemPerBlockOptin"],
            "shared_memory_per_multiprocessor_bytes": properties["sharedMemPerMultiprocessor"],
            "registers_per_block": properties["regsPerBlock"],
            "registers_per_multiprocessor": properties["regsPerMultiprocessor"],
            "threads_per_block": properties["maxThreadsPerBlock"],
            "threads_per_multiprocessor": properties["maxThreadsPerMultiProcessor"],
            "warp_size": properties["warpSize"],
            "ecc": bool(properties["ECCEnabled"]),
            "uuid": _uuid(index),
        },
    )


def _uuid(index: int) -> str:
    """As nvidia-smi prints it; empty if the driver has none to tell, or cannot be asked.

    From the driver: CuPy's properties end it at its first zero byte, which one GPU in 16 has.
    """
    try:
        status, raw = _driver_uuid(index)
    except ImportError:  # without cuda-bindings nothing compiles, and that is said where it matters
        return ""
    return "" if status else f"GPU-{uuid.UUID(bytes=raw)}"


def _driver_uuid(index: int) -> tuple[int, bytes]:
    """The driver's status, 0 for success, and the 16 bytes."""
    from cuda.bindings import driver

    driver.cuInit(0)
    status, device = driver.cuDeviceGet(index)
    if not status:
        status, found = driver.cuDeviceGetUuid(device)
    return (int(status), b"") if status else (0, found.bytes)


@cache
def _versions_once() -> dict[str, str]:
    import cupy
    from cupy.cuda import cublas, device

    from gpubench.backends.cuda.compile import nvrtc_version
    from gpubench.errors import CompileError

    versions = {"cupy": cupy.__version__}
    driver = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", _driver_text())
    if driver:
        versions["driver"] = driver[1]
    try:
        versions["nvrtc"] = ".".join(map(str, nvrtc_version()))
    except CompileError as error:
        versions["nvrtc"] = str(error)
    cublas_version = cublas.getVersion(device.get_cublas_handle())
    versions["blas"] = f"cuBLAS {_cublas_version(cublas_version)}"
    return versions


def _versions(runtime: Any) -> dict[str, str]:
    return _versions_once() | {
        "cuda": _version(runtime.driverGetVersion()),
        "cuda_runtime": _version(runtime.runtimeGetVersion()),
    }


def _version(number: int) -> str:
    """13000 is 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _cublas_version(number: int) -> str:
    """130100 is 13.1.0; 120903 is 12.9.3."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _driver_text() -> str:
    try:
        return Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return ""
